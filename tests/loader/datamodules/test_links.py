"""The data module of links: what is trained on, what is tested on, and that neither knows the other."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.trainer.states import TrainerFn
from small_datamodule import Crash, make_trainer, make_trainer_of
from small_loader import no_threads

from loader.datamodules.links import LinkDataModule
from loader.datasets import DistanceFeatures, NodeDataset, NpzDataset
from loader.graph import Graph
from loader.samplers import FusedSampler, WalkSampler

NUM_NODES = 60


def dataset():
    generator = torch.Generator().manual_seed(2)
    src, dst = torch.randint(NUM_NODES, (2, 500), generator=generator)
    graph = Graph.from_edges(torch.cat([src, dst]), torch.cat([dst, src]), NUM_NODES)
    ids = torch.arange(NUM_NODES)
    splits = {"train": ids[:20], "val": ids[20:30], "test": ids[30:]}
    return NodeDataset("random", graph, torch.rand(NUM_NODES, 5, generator=generator), ids % 3, splits, 3)


def module(**options):
    arguments = {"sampler": FusedSampler([4, 3], edge_ids=True, num_threads=1), "batch_size": 32, **options}
    made = LinkDataModule(dataset(), **arguments)
    made.setup("fit")
    return made


def pairs_of(links, ends):
    return set(map(tuple, links.nodes[ends].t().tolist()))


def test_a_graph_for_gpus_needs_one():
    with pytest.raises(
        ValueError, match="graph is 'pinned', for a GPU sampler to read, but the samplers run on the CPU"
    ):
        module(graph="pinned")


def test_distances_along_held_out_links_are_refused(tmp_path):
    given = NpzDataset(tmp_path / "g.npz", cache_dir=tmp_path, transform=[DistanceFeatures(1)])
    with pytest.raises(ValueError, match="transform of dataset g has DistanceFeatures, whose distances go along links"):
        LinkDataModule(given, FusedSampler([4]))
    loaded = replace(DistanceFeatures(2)(dataset()), name="later")  # a dataset that was made of it stays one of it
    with pytest.raises(ValueError, match="dataset later has DistanceFeatures, whose distances go along links"):
        LinkDataModule(loaded, FusedSampler([4])).prepare_data()


def test_training_never_sees_held_out_links():
    made = module()
    held = {tuple(pair) for name in ("val", "test") for pair in made.split.pairs[name].tolist()}
    held |= {(v, u) for u, v in held}
    known = held | {tuple(pair) for pair in made.split.pairs["train"].tolist()}
    known |= {(v, u) for u, v in known}
    met = []
    for batch in made.train_dataloader():
        ends, truth = batch.pairs()
        asked = pairs_of(batch, ends[:, truth == 1])
        assert not held & asked
        assert not known & pairs_of(batch, ends[:, truth == 0])
        met += [tuple(pair) for pair in batch.nodes[ends[:, truth == 1]].t().tolist()]
        for block in batch.around.blocks:
            dst = torch.arange(block.num_dst).repeat_interleave(block.indptr.diff().long())
            seen = pairs_of(batch, torch.stack([block.indices.long(), dst]))
            assert not seen & held
            assert not seen & asked
            assert not seen & {(v, u) for u, v in asked}
    train = [tuple(pair) for pair in made.split.pairs["train"].tolist()]
    assert sorted(met) == sorted(train + [(v, u) for u, v in train])


@pytest.mark.parametrize("name", ["val", "test"])
def test_negatives_of_held_out_links_are_no_links(name):
    made = module(eval_negatives=7)
    held = made.held_out(name)
    dst = torch.arange(NUM_NODES).repeat_interleave(made.split.known.in_degrees().long())
    known = set(zip(made.split.known.indices.tolist(), dst.tolist(), strict=True))
    assert torch.equal(held.links, made.split.pairs[name])
    assert held.negatives.shape == held.links.shape
    assert held.targets.shape == (len(held.links), 7)
    assert not known & set(map(tuple, held.negatives.tolist()))
    for (source, _), targets in zip(held.links.tolist(), held.targets.tolist(), strict=True):
        assert not known & {(source, target) for target in targets}
    again = made.held_out(name)
    assert torch.equal(again.negatives, held.negatives)
    assert torch.equal(again.targets, held.targets)
    assert not torch.equal(module(seed=1).held_out(name).negatives, held.negatives)
    assert next(iter(held)) is held
    assert len(held) == 1


class Asked(LightningModule):
    automatic_optimization = False

    def __init__(self):
        super().__init__()
        self.weight, self.links = torch.nn.Parameter(torch.zeros(())), []

    def training_step(self, batch, index):
        ends, truth = batch.pairs()
        self.links.append(batch.nodes[ends[:, truth == 1]].tolist())

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_overfitting_takes_the_same_links_each_epoch(tmp_path):
    for overfit in (2, 0):
        model = Asked()
        trainer = make_trainer(tmp_path, overfit_batches=overfit, max_epochs=2, limit_val_batches=0)
        trainer.fit(model, datamodule=module())
        half = len(model.links) // 2
        assert (model.links[:half] == model.links[half:]) == (overfit > 0)


def test_bad_arguments_are_refused():
    for options, message in (
        ({"graph": "disk"}, "graph is 'disk'"),
        ({"exclude": "all"}, "exclude is 'all'"),
        ({"num_negatives": 0}, "num_negatives is 0"),
        ({"eval_negatives": 0}, "eval_negatives is 0"),
        ({"val": 1.0}, "val is 1.0; it must be above 0 and below 1"),
        ({"prefetch": -1}, "prefetch is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"sampler": FusedSampler([2, 2], weights="edge_weights")}, "the graph of the train links has no weights"),
    ):
        with pytest.raises(ValueError, match=message):
            module(**options)
    for options, message in (
        ({"dataset": 3}, "dataset is an int; give a NodeDataset"),
        ({"sampler": WalkSampler(3)}, "sampler is a WalkSampler; it must be one of nodes"),
        ({"features": 3}, "features is an int; it must be a function that makes a store"),
        ({"drop_last": "maybe"}, "drop_last is 'maybe'; it must be True or False"),
        ({"test": "x"}, "test is 'x'; it must be a number"),
    ):
        with pytest.raises(TypeError, match=message):
            LinkDataModule(**{"dataset": dataset(), "sampler": FusedSampler([2, 2]), **options})


def test_close_ends_threads_and_loaders():
    made = module()
    next(iter(made.train_dataloader()))
    made.close()


class Taker(LightningModule):
    """Writes down the numbers of the mini-batches it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.taken: list[tuple[int, int]] = []

    def training_step(self, batch):
        self.taken.append((batch.epoch, batch.index))
        return self.weight.square()

    def validation_step(self, batch): ...

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class SavingBefore(Callback):
    """Writes a checkpoint while a mini-batch is in hand, and ends the run."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer, model, batch, batch_idx):
        if trainer.global_step == self.step:
            trainer.save_checkpoint(Path(trainer.default_root_dir) / "in-hand.ckpt")
            raise Crash


def test_a_resumed_run_takes_what_was_in_hand(tmp_path: Path) -> None:
    options = {"max_epochs": 2, "limit_val_batches": 0}
    whole, resumed = Taker(), Taker()
    trainer = make_trainer(tmp_path, **options)
    trainer.fit(whole, datamodule=module())
    per_epoch = trainer.num_training_batches
    assert whole.taken == [(epoch, index) for epoch in range(2) for index in range(per_epoch)]
    step = per_epoch + 3
    with pytest.raises(Crash):
        make_trainer(tmp_path, callbacks=[SavingBefore(step)], **options).fit(Taker(), datamodule=module())
    assert no_threads()
    checkpoint = tmp_path / "in-hand.ckpt"
    make_trainer(tmp_path, **options).fit(resumed, datamodule=module(), ckpt_path=checkpoint)
    assert resumed.taken == whole.taken[step:]


def test_ranks_share_the_rest_of_an_epoch() -> None:
    first = module()
    loader = first.train_dataloader()
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    state, count = loader.state_dict(), len(loader)
    first.close()
    taken = []
    for rank in range(2):
        made = module()
        trainer = make_trainer_of(rank, 2, TrainerFn.FITTING)
        made.trainer = trainer
        resumed = made.train_dataloader()
        resumed.load_state_dict(state)
        taken += [batch.index for batch in resumed if not batch.repeats]
        made.teardown()
        made.close()
    assert sorted(taken) == list(range(4, count))


def test_another_number_of_processes_makes_a_new_loader() -> None:
    made = module()
    alone = made.train_dataloader()
    begun = iter(alone)
    next(begun)
    assert made.train_dataloader() is alone
    made.trainer = make_trainer_of(1, 2, TrainerFn.FITTING)
    shared = made.train_dataloader()
    assert shared is not alone
    assert (shared.sequence.rank, shared.sequence.world_size) == (1, 2)
    assert made.train_dataloader() is shared
    made.close()
    assert no_threads()


def test_a_batch_size_set_later_counts() -> None:
    made = module()
    before = len(made.train_dataloader())
    made.batch_size *= 2
    assert len(made.train_dataloader()) == -(-before // 2)
    made.close()
    assert no_threads()


def test_a_seed_set_later_holds_other_links_out() -> None:
    made, other = module(), module(seed=1)
    first = made.train_dataloader()
    made.seed = 1
    assert made.train_dataloader() is not first
    for name in ("train", "val", "test"):
        assert torch.equal(made.split.pairs[name], other.split.pairs[name])
    assert torch.equal(made.held_out("val").links, other.held_out("val").links)
    assert torch.equal(made.held_out("val").negatives, other.held_out("val").negatives)
    made.num_negatives = 3
    batch = next(iter(made.train_dataloader()))
    assert batch.negative_targets.numel() == 3 * batch.batch_size
    for one in (made, other):
        one.close()
    assert no_threads()


class Learning(Asked):
    def training_step(self, batch, index):
        super().training_step(batch, index)
        self.optimizers().step()

    test_step = Asked.validation_step


def test_a_seed_set_after_learning_is_refused(tmp_path: Path) -> None:
    class Reseeding(Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            trainer.datamodule.seed += 1

    options = {"max_epochs": 2, "limit_val_batches": 0, "reload_dataloaders_every_n_epochs": 1}
    trainer = make_trainer(tmp_path, callbacks=[Reseeding()], **options)
    with pytest.raises(ValueError, match="seed is 1, which holds out other links than the model was trained without"):
        trainer.fit(Learning(), datamodule=module())
    trainer, made, model = make_trainer(tmp_path, max_epochs=1, limit_val_batches=0), module(), Learning()
    trainer.fit(model, datamodule=made)
    made.seed = 1
    with pytest.raises(ValueError, match="trained without; set it before fit, with a new model and Trainer"):
        trainer.test(model, datamodule=made)
    make_trainer(tmp_path, max_epochs=1, limit_val_batches=0).fit(Learning(), datamodule=made)
    for run in (make_trainer(tmp_path).test, make_trainer(tmp_path, max_epochs=1).fit):  # new ones know no steps
        with pytest.raises(ValueError, match="trained without; set it before fit, with a new model and Trainer"):
            run(model, datamodule=made)
    make_trainer(tmp_path).test(Learning(), datamodule=made)
    made.seed = 0
    make_trainer(tmp_path).test(model, datamodule=made)
    made.close()


def test_a_module_that_trained_can_be_pickled(tmp_path: Path) -> None:
    made = module()
    make_trainer(tmp_path, max_epochs=1, limit_val_batches=0).fit(Learning(), datamodule=made)
    made.trainer = None  # whose model is of this test
    copy = pickle.loads(pickle.dumps(made))
    assert all(torch.equal(copy.split.pairs[name], pairs) for name, pairs in made.split.pairs.items())
    made.close()


def test_a_split_of_the_user_stays() -> None:
    made, other = module(), module(seed=1)
    made.setup()
    other.setup()
    made.split = other.split
    made.seed = 2
    made.train_dataloader()
    assert made.split is other.split
    made.close()


def test_samplers_of_links_may_compare_alike() -> None:
    class Alike(FusedSampler):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Alike)

    made = LinkDataModule(dataset(), Alike([4], num_threads=1))
    made.setup()
    before = made.train_dataloader()
    assert made.train_dataloader() is before
    made.around = Alike([1], num_threads=1)
    assert made.train_dataloader() is not before
    made.close()


def test_a_dataset_may_have_no_features():
    made = LinkDataModule(replace(dataset(), features=torch.empty(NUM_NODES, 0)), FusedSampler([4], num_threads=1))
    made.setup("fit")
    assert next(iter(made.train_dataloader())).around.features is None
    made.close()
