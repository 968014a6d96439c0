"""Who samples for torch_geometric, in this process and in those that it spawns."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch
from host_ranks import ROOT
from torch_geometric.data import Data
from torch_geometric.sampler import NeighborSampler, NodeSamplerInput
from torch_geometric.transforms import RootedRWSubgraph

import loader.pyg

pytestmark = pytest.mark.skipif(loader.pyg.backend() != "loader", reason="pyg-lib or torch-sparse is installed")

EDGES = torch.randint(30, (2, 200), generator=torch.Generator().manual_seed(4))


def run(*command):
    """Runs Python in a process that finds this package."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, env=environment)


def inputs():
    return NodeSamplerInput(input_id=None, node=torch.arange(5))


def test_a_copied_sampler_samples_the_same():
    sampler = NeighborSampler(Data(edge_index=EDGES, num_nodes=30), [3, 2])
    sampler.note = "kept"
    torch.manual_seed(1)
    want = sampler.sample_from_nodes(inputs()).node
    for made in (copy.copy(sampler), copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        torch.manual_seed(1)
        assert torch.equal(made.sample_from_nodes(inputs()).node, want)
        assert made.note == "kept"


def test_pickles_bring_the_import_along(tmp_path):
    things = {
        "sampler": NeighborSampler(Data(edge_index=EDGES, num_nodes=30), [3, 2]),
        "transform": RootedRWSubgraph(walk_length=2),
        "inputs": inputs(),
        "data": Data(edge_index=EDGES, num_nodes=30, x=torch.rand(30, 2)),
    }
    torch.manual_seed(1)
    want = things["sampler"].sample_from_nodes(things["inputs"]).node
    (tmp_path / "things").write_bytes(pickle.dumps(things))
    script = """
        import pickle, sys, torch
        things = pickle.load(open(sys.argv[1], "rb"))
        torch.manual_seed(1)
        print(things["sampler"].sample_from_nodes(things["inputs"]).node.tolist())
        print(things["transform"](things["data"]).n_sub_batch.numel() > 0)
    """
    ran = run("-c", textwrap.dedent(script), str(tmp_path / "things"))
    assert ran.stdout.splitlines() == [str(want.tolist()), "True"], ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_a_late_import_sample(tmp_path, method):
    script = tmp_path / "late.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import torch
            from torch_geometric.data import Data
            from torch_geometric.loader import NeighborLoader

            def main():
                import loader.pyg

                edges = torch.randint(30, (2, 200))
                made = NeighborLoader(
                    Data(edge_index=edges, num_nodes=30), [3, 2], batch_size=10, num_workers=1,
                    multiprocessing_context="{method}",
                )
                print(sum(batch.batch_size for batch in made))

            if __name__ == "__main__":
                main()
            """
        )
    )
    ran = run(str(script))
    assert ran.stdout.split() == ["30"], ran.stderr
