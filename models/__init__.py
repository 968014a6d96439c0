"""GraphSAGE, the LightningModule that trains it, layer-wise inference, and what a run shows of itself."""
