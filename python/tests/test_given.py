"""Tests that every argument is used, or refused by name: what counts as given, and errors for values of the wrong kind."""

import enum

import pytest

import feedwater as fw
from feedwater import _toml

CROP = [fw.ops.Crop(width=4, height=4)]
MIXUP = fw.ops.Mixup(alpha=0.2)


def text(folder, transform=CROP, **given):
    """Returns all settings of a loader with these arguments, as a pipeline file."""
    if "loader" not in given:
        given.setdefault("batch_size", 4)
    with fw.Loader(folder, transform, framework="batch", device="cpu", **given) as loader:
        return loader.settings()


def refused(folder, transform=CROP, **given):
    """Returns the message of the error for these arguments. The error must be one of the documented ones."""
    with pytest.raises((TypeError, ValueError)) as raised:
        text(folder, transform, **given)
    return str(raised.value)


@pytest.mark.parametrize("group", [{"shuffle": None, "batch_size": 4}, fw.LoaderSettings(shuffle=None, batch_size=4)])
def test_none_in_a_group_means_not_given(folder, group):
    assert "shuffle = true" in text(folder, fw.train_recipe(4), loader=group)


def test_none_of_a_group_leaves_the_default_of_a_recipe(folder):
    assert 'last_batch = "partial"' in text(folder, fw.eval_recipe(4), loader={"last": None, "batch": 4})
    recipe = fw.Recipe(CROP, {"output": {"dtype": "u8"}})
    assert 'dtype = "u8"' in text(folder, recipe, output={"dtype": None})
    assert "batch_size = 3" in text(folder, loader={"batch_size": None}, batch_size=3)
    recipe.sections["output"]["dtype"] = None
    assert 'dtype = "f32"' in text(folder, recipe)


def test_an_unknown_key_is_an_error_whatever_its_value(folder):
    for value in (True, None):
        assert "prescale" in refused(folder, decode={"prescal": value})
        assert "horizontal" in refused(folder, [{"op": "flip", "horizontl": value}])
        nested = {"op": "random_apply", "operators": [{"op": "flip", "horizontl": value}]}
        assert "horizontal" in refused(folder, [nested])
        assert "prescale" in refused(folder, fw.Recipe(CROP, {"decode": {"prescal": value}}))
    assert 'op = "flip"' in text(folder, [*CROP, {"op": "flip", "horizontal": 0.5, "vertical": None}])


def test_an_unknown_section_of_a_recipe_is_an_error(folder):
    with pytest.raises(ValueError, match="did you mean loader"):
        fw.Recipe(CROP, {"laoder": {"shuffle": True}})
    recipe = fw.Recipe(CROP)
    recipe.sections["decod"] = {"prescale": True}
    assert "did you mean decode" in refused(folder, recipe)
    # A section may be an object, as in the loader.
    both = fw.Recipe(CROP, {"loader": fw.LoaderSettings(shuffle=True)}) + fw.Recipe([], {"loader": {"shuffle": True}})
    assert "shuffle = true" in text(folder, both)
    assert "shuffle" in refused(folder, fw.Recipe(CROP, {"loader": {"shufle": True}}))


def test_batch_operators_of_a_recipe_can_be_switched_off(folder):
    recipe = fw.Recipe(CROP, {"targets": {"classes": 2}}, batch_operators=[MIXUP])
    assert 'op = "mixup"' in text(folder, recipe)
    assert 'op = "mixup"' in text(folder, recipe, batch_operators=None)
    for none in ([], ()):
        assert "mixup" not in text(folder, recipe, batch_operators=none)
    other = text(folder, recipe, batch_operators=fw.ops.CutMix(alpha=1.0))
    assert "cutmix" in other and "mixup" not in other


@pytest.mark.parametrize("operators", [3, "mixup", [3], CROP, [fw.ops.Mixup], fw.ops.Mixup])
def test_what_is_no_batch_operator_is_named(folder, operators):
    assert "batch_operators contains" in refused(folder, batch_operators=operators, classes=2)


def test_iterators_are_read_when_settings_are_made(folder):
    storage = fw.Storage(allow_urls=iter(["*"]))
    source = fw.directory(folder, extensions=iter(["ppm"]))
    crop = fw.ops.RandomResizedCrop(width=4, height=4, scale=(it for it in (0.5, 1.0)))
    first, second = (text(source, [crop], storage=storage) for _ in range(2))
    assert first == second and 'allow_urls = ["*"]' in first and '["ppm"]' in first and "[0.5, 1.0]" in first
    # Later changes of a list do not change settings that were made from it.
    urls = ["a.example"]
    storage = fw.Storage(allow_urls=urls)
    urls.append("b.example")
    assert storage.allow_urls == ["a.example"]


@pytest.mark.parametrize("number", [10**8, 10**30, 10**5000, 2**20, -1], ids=["1e8", "1e30", "1e5000", "2^20", "-1"])
def test_class_numbers_have_a_limit(folder, number):
    message = refused(folder, classes_of={"cat": number, "dog": 0})
    assert "'cat'" in message and "0 to 1048575" in message and len(message) < 400


def test_class_numbers_may_have_gaps(folder):
    with fw.Loader(fw.directory(folder), CROP, batch_size=4, framework="batch", device="cpu", classes_of={"cat": 5, "dog": 1}) as loader:
        assert loader.classes == ["", "dog", "", "", "", "cat"]


@pytest.mark.parametrize("chain", [fw.ops.Flip, [fw.ops.Flip]])
def test_an_operator_without_parentheses_is_named(folder, chain):
    message = refused(folder, chain)
    assert "the class Flip" in message and "fw.ops.Flip(...)" in message
    with pytest.raises(TypeError, match=r"fw\.ops\.Flip\(\.\.\.\)"):
        fw.ops.RandomApply(chain)
    assert "without parentheses" in refused(folder, decode=fw.Decode)


def test_what_is_no_operator_names_where_it_belongs(folder):
    assert "recipe + [operator]" in refused(folder, [fw.train_recipe(8)])
    assert "batch_operators=[fw.ops.Mixup(...)]" in refused(folder, [MIXUP])
    assert "decode=" in refused(folder, [fw.Decode(prescale=True)])
    with fw.Loader(folder, CROP, batch_size=4, framework="batch", device="cpu") as other:
        assert "contains a Loader" in refused(folder, other)
    assert fw.ops.RandomApply(fw.ops.Flip()) == fw.ops.RandomApply([fw.ops.Flip()])
    with pytest.raises(TypeError, match="operators contains a int"):
        fw.ops.OneOf(3)


class Size(int, enum.Enum):
    """An integer whose text is not its number."""

    FOUR = 4

    def __str__(self):
        return "Size.FOUR"


class Key(str, enum.Enum):
    """A text whose `str` is another text."""

    BATCH = "batch_size"


def test_enumerations_are_their_values(folder):
    assert "batch_size = 4" in text(folder, batch_size=Size.FOUR)
    assert "batch_size = 4" in text(folder, loader={Key.BATCH: Size.FOUR})


def test_values_without_an_end_or_a_text_are_named(folder):
    endless = []
    endless.append(endless)
    table = {}
    table["decode"] = table
    with pytest.raises(ValueError, match="contains itself"):
        fw.Storage(allow_urls=endless)
    assert "contains itself" in refused(folder, decode=table)
    assert "contains itself" in refused(folder, storage={"allow_urls": endless})
    with pytest.raises(ValueError, match="not valid Unicode"):
        _toml.value({"expr": "\ud800"})
    assert "expr" in refused(folder, [fw.ops.Pointwise(expr="x * \ud800")])
    with pytest.raises(OverflowError, match="seed: must be an integer .* is a number of"):
        text(folder, seed=10**5000)


@pytest.mark.parametrize("framework", [[], {}, 3, None])
def test_a_framework_is_a_text(folder, framework):
    with pytest.raises(ValueError, match="framework is"):
        fw.Loader(folder, CROP, batch_size=4, framework=framework)


def test_a_framework_is_no_array(folder):
    numpy = pytest.importorskip("numpy")
    with pytest.raises(ValueError, match="framework is"):
        fw.Loader(folder, CROP, batch_size=4, framework=numpy.zeros(3))


def test_a_state_with_other_class_names_than_texts_is_named(folder):
    with fw.Loader(folder, CROP, batch_size=4, framework="batch", device="cpu") as loader:
        state = {**loader.state_dict(), "classes": 3}
        with pytest.raises(fw.errors.ConfigError, match="'classes' is 3"):
            loader.load_state_dict(state)
        assert "'classes' is 3" in refused(folder, classes_of=state)


@pytest.mark.parametrize("items", [3, "images", b"images", iter([b""]), None])
def test_items_are_a_sequence(items):
    with pytest.raises(TypeError, match="items is"):
        fw.samples(items)


def test_labels_and_classes_of_items_are_lists():
    with pytest.raises(TypeError, match="labels is 3"):
        fw.samples([b""], 3)
    with pytest.raises(TypeError, match="classes is 'cat'"):
        fw.samples([b""], classes="cat")
    with pytest.raises(ValueError, match="'a'"):
        fw.samples([b""], ["a"])


def test_a_pipeline_file_is_no_source(folder, tmp_path):
    path = tmp_path / "pipeline.toml"
    path.write_text(text(folder))
    assert "fw.Loader.from_toml" in refused(path)
    with pytest.raises(TypeError, match="batch_size; the pipeline file has the settings"):
        fw.Loader.from_toml(path, batch_size=3)
    with pytest.raises(TypeError, match="own is 3"):
        fw.Loader.from_toml(path, own=3)
    fw.Loader.from_toml(path, framework="batch").close()


def test_a_loader_needs_a_source(folder):
    for name in ("dataset", "data_dir", "root"):
        with pytest.raises(TypeError, match=f"no parameter {name}; write source="):
            fw.Loader(**{name: folder})
    with pytest.raises(TypeError, match="no source"):
        fw.Loader(batch_size=3)


def test_values_with_another_meaning_elsewhere_are_explained(folder):
    assert "threads" in refused(folder, num_workers=0) and "num_workers=1" in refused(folder, loader={"workers": 0})
    for given in ({"classes": ["cat", "dog"]}, {"targets": {"classes": ["cat", "dog"]}}):
        assert "classes_of=" in refused(folder, **given)


def test_integrations_name_what_is_no_loader():
    for function in (fw.integrations.torch_dataset, fw.integrations.keras_dataset):
        with pytest.raises(TypeError, match="loader is a int"):
            function(3)


def test_arguments_of_combinations_are_named(folder):
    source = fw.directory(folder)
    for weights in (3, "12", {"a": 1}):
        with pytest.raises(TypeError, match="weights is"):
            fw.mixture(source, source, weights=weights)
    for weight in ("a", True, None, []):
        with pytest.raises(TypeError, match=r"weights\[1\] is"):
            fw.mixture(source, source, weights=[1, weight])
    assert repr(fw.mixture(source, source, weights=iter([1, 2]))) == repr(fw.mixture(source, source, weights=[1, 2]))
    with pytest.raises(TypeError, match=r"fw\.concat\(\*sources\)"):
        fw.concat([source, source])
    with pytest.raises(TypeError, match="classes is 3"):
        source.with_classes(3)


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        (lambda: fw.ops.CenterCrop(224), r"fw\.ops\.CenterCrop takes no arguments without a name; name the others: width=, height="),
        (lambda: fw.Decode(True), r"fw\.Decode takes no arguments without a name"),
        (lambda: fw.Loader("data", CROP, 32), r"fw\.Loader takes only source and transform without a name; name the others: batch_size="),
        (lambda: fw.train_recipe(224, 0.1), r"fw\.train_recipe takes only size without a name"),
        (lambda: fw.Loader.from_toml("a.toml", "numpy"), "takes only path without a name"),
        (lambda: fw.Loader.from_toml(3), "path is 3"),
    ],
)
def test_arguments_without_a_name_are_explained(wrong, advice):
    with pytest.raises(TypeError, match=advice):
        wrong()
