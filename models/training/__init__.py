"""What trains the networks: the LightningModule, replayed steps, callbacks, what a run prints and returns."""
