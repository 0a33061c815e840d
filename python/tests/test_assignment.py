"""Tests that assignments to settings, operators, sources and loaders are errors, because they would have no effect."""

import copy
import pickle

import pytest

import feedwater as fw

ITEMS = [b"image"]
MADE = {
    "group": (fw.Decode(prescale=True), "prescale", True, "fw.Decode"),
    "operator": (fw.ops.Flip(horizontal=0.25), "horizontal", 0.25, "fw.ops.Flip"),
    "batch operator": (fw.ops.Mixup(alpha=0.2), "alpha", 0.2, "fw.ops.Mixup"),
    "source": (fw.directory("data", extensions=["jpg"]), "extensions", ["jpg"], "source"),
    "selection": (fw.directory("data").select(take=3), "take", 3, "source"),
    "samples": (fw.samples(ITEMS, [3]), "labels", [3], "fw.samples"),
}


@pytest.mark.parametrize(("made", "name", "value", "maker"), MADE.values(), ids=MADE)
def test_settings_can_be_read_but_not_assigned(made, name, value, maker):
    assert getattr(made, name) == value
    before = repr(made)
    for wrong in (name, name[:-1] + "x", "unrelated_name"):
        with pytest.raises(AttributeError, match=f"{wrong} of a .* cannot be assigned.*{maker}"):
            setattr(made, wrong, value)
    with pytest.raises(AttributeError, match=f"did you mean {name}"):
        setattr(made, name[:-1] + "x" if len(name) > 4 else name + "s", value)
    with pytest.raises(AttributeError, match="cannot be deleted"):
        delattr(made, name)
    with pytest.raises(AttributeError, match="has no attribute unrelated_name"):
        made.unrelated_name
    assert repr(made) == before and getattr(made, name) == value


def test_settings_from_arrays_are_lists():
    numpy = pytest.importorskip("numpy")
    routes = numpy.array(["cpu", "nvjpeg-gpu"])
    decode = fw.Decode(routes=routes)
    routes[0] = "nvjpeg-gpu"
    assert decode == fw.Decode(routes=["cpu", "nvjpeg-gpu"]) and decode.routes == ["cpu", "nvjpeg-gpu"]
    assert fw.ops.Flip(horizontal=numpy.float64(0.5)) == fw.ops.Flip(horizontal=0.5)


def test_a_setting_that_is_not_given_is_none():
    assert fw.Decode().prescale is None and fw.ops.Flip().vertical is None
    assert fw.directory("data").extensions is None and fw.directory("data").select(take=1).extensions is None
    assert not hasattr(fw.Decode(), "prescal")


@pytest.mark.parametrize("made", [it[0] for it in MADE.values()], ids=MADE)
def test_settings_are_copied_and_pickled(made):
    for same in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert repr(same) == repr(made) and type(same) is type(made)
        with pytest.raises(AttributeError, match="cannot be assigned"):
            same.take = 1


@pytest.fixture
def loader(folder):
    with fw.Loader(folder, [fw.ops.Crop(width=4, height=4)], batch_size=4, framework="batch", device="cpu") as loader:
        yield loader


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("seed", "pass seed="),
        ("batch_size", "pass batch_size="),
        ("batch", "pass batch_size="),
        ("shuffel", "did you mean shuffle"),
        ("prescale", "decode=fw.Decode"),
        ("epoch", "set_epoch"),
        ("collate_fn", "leave it out"),
        ("stats", "arguments of fw.Loader"),
    ],
)
def test_settings_of_a_loader_are_arguments(loader, name, advice):
    with pytest.raises(AttributeError, match=f"{name} of a loader cannot be assigned.*{advice}"):
        setattr(loader, name, 8)


def test_a_loaders_subclass_may_have_attributes_of_its_own(folder):
    class Counted(fw.Loader):
        def __init__(self, *arguments, **settings):
            self.loops = 0
            super().__init__(*arguments, **settings)

    with Counted(folder, [fw.ops.Crop(width=4, height=4)], batch_size=4, framework="batch", device="cpu") as loader:
        loader.loops += 1
        assert loader.loops == 1
        with pytest.raises(AttributeError, match="seed of a loader"):
            loader.seed = 1
