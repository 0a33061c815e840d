"""Tests that the compiled part accepts the TOML that operators and sources write in Python."""

import inspect
import io
import math
import re
import tarfile

import feedwater as fw
import pytest
from feedwater import _feedwater, _toml, ops

#: Valid values of required settings for which the number 8 is not valid.
SETTINGS = {
    "end": [[0, 0], [7, 0], [7, 7], [0, 7]],
    "expr": "x * 0.5",
    "config": "rand-m9-mstd0.5",
    "kernel_size": 3,
    "min_size": [8],
    "mean": [0.5, 0.5, 0.5],
    "std": [0.2, 0.2, 0.2],
    "bits": 4,
    "padding": 2,
    "quality": [50, 90],
    "angle": 10,
    "degrees": 10,
    "shift": 0.1,
    "operators": [ops.Invert()],
    "count": 1,
    "shorter": 8,
}
#: Values for operators in which a setting has another type than the setting of the same name in other operators.
OWN_SETTINGS = {
    ops.RandomResize: {"min_size": 8, "max_size": 16},
    ops.TimmAutoAugment: {"config": "original"},
    ops.TimmAugMix: {"config": "augmix-m3-w3"},
}
CLASSES = [getattr(ops, name) for name in ops.__all__]


def required(function):
    """Returns the names of the arguments without a default."""
    parameters = list(inspect.signature(function).parameters.values())
    return [it.name for it in parameters if it.default is inspect.Parameter.empty and it.name not in ("self", "args", "kwargs", "settings")]


def made(operator):
    """Returns an operator with only its required settings."""
    known = SETTINGS | OWN_SETTINGS.get(operator, {})
    settings = {name: known.get(name, 8) for name in required(operator.__init__)}
    if operator is ops.Resize:
        settings["shorter"] = 8
    return operator(**settings)


def pipeline(chain=(), batch_operators=(), source='{directory = "data"}'):
    """Parses a pipeline with these operators."""
    lines = [f"source = {source}", f"chain = {_toml.value(list(chain))}"]
    if batch_operators:
        lines += [f"batch_operators = {_toml.value(list(batch_operators))}", "targets = {classes = 10}"]
    return _feedwater.Pipeline.from_toml("\n".join(lines), ".")


@pytest.mark.parametrize("operator", CLASSES, ids=lambda it: it.__name__)
def test_every_operator_is_read_with_its_required_settings(operator):
    operators = [made(operator)]
    text = pipeline(batch_operators=operators) if issubclass(operator, fw.BatchOperator) else pipeline(operators)
    assert f'op = "{operator.OP}"' in text.to_toml()


@pytest.mark.parametrize("operator", [it for it in CLASSES if issubclass(it, fw.Operator)], ids=lambda it: it.__name__)
def test_no_required_setting_can_be_left_out(operator):
    whole = made(operator)
    for name in required(operator.__init__):
        table = {key: value for key, value in whole.settings().items() if key != name}
        with pytest.raises(fw.errors.ConfigError, match=name.removesuffix("s")):
            pipeline([table])


def test_operators_compare_and_print():
    flip = ops.Flip(horizontal=0.5)
    assert flip == ops.Flip(horizontal=0.5) != ops.Flip(horizontal=0.25)
    assert len({flip, ops.Flip(horizontal=0.5)}) == 1
    assert repr(flip) == "Flip(horizontal=0.5)"
    nested = ops.RandomApply([flip, ops.OneOf([ops.Invert(), ops.Equalize()], weights=[1, 2])], probability=0.3)
    assert "weights" in pipeline([nested]).to_toml()


def test_a_wrong_setting_names_its_place():
    with pytest.raises(fw.errors.ConfigError) as wrong:
        pipeline([ops.Flip(horizontal=0.5), ops.Flip(horizontal=1.5)])
    assert wrong.value.key == "chain[1].horizontal" and "1.5" in str(wrong.value)
    assert "line" not in str(wrong.value), "the message must not refer to lines of the internal TOML"
    with pytest.raises(TypeError, match="horizontale"):
        ops.Flip(horizontale=0.5)
    with pytest.raises(TypeError, match="complex"):
        _toml.value(1j)


@pytest.mark.parametrize("name", fw.sources.__all__)
def test_every_source_has_the_settings_of_its_section(name):
    function = getattr(fw.sources, name)
    given = [it for it in inspect.signature(function).parameters if it not in ("path", "paths")]
    key = {"file_list": "list"}.get(name, name)
    written = pipeline(source=_toml.value(function("somewhere"))).to_toml()
    section = written.split("[source]")[1].split("\n[")[0]
    keys = {line.split(" =")[0] for line in section.splitlines() if " = " in line}
    # Settings without a default are not serialized.
    assert keys - {key} <= set(given) and key in keys
    values = {"class_to_index": {"a": 0}, "extensions": ["jpg"], "skip_keys": ["x"], "cache_bytes": 5 << 20, "separator": ",", "side_files": {"x": "{stem}.txt"}, "fields": {"x": "x.npy"}}
    for setting in given:
        kind = inspect.signature(function).parameters[setting].annotation
        choice = re.search(r"Literal\['(\w+)'", kind)
        some = choice[1] if choice else kind.startswith("bool") or "x"
        pipeline(source=_toml.value(function("somewhere", **{setting: values.get(setting, some)})))


def test_sources_are_selected_joined_and_mixed(folder):
    cats = fw.directory(folder).select(classes=["cat"], skip=2, take=5)

    def indices(source):
        loader = fw.Loader(source, [ops.Crop(width=12, height=8)], batch_size=1, framework="batch", dtype="u8")
        return [loader.location(batch.indices[0])[-6:-4] for batch in loader]

    assert indices(cats) == ["02", "03", "04", "05", "06"]
    dogs = fw.directory(folder).select(labels=[1], subset=None).select(repeat=2)
    assert len(indices(dogs)) == 20
    assert len(indices(fw.concat(cats, fw.directory(folder)))) == 25
    mixed = fw.mixture(cats, fw.directory(folder), weights=[1, 3], samples=16)
    assert len(indices(mixed)) == 16
    with pytest.raises(ValueError, match="take"):
        cats.select(take=2)
    with pytest.raises(ValueError, match="2 sources"):
        fw.mixture(cats, cats, weights=[1])


@pytest.mark.parametrize("value", [True, -5, 1 << 40, 0.1, 1e300, math.inf, -math.inf, "a\"b\\c\n\t\0é😀\x7f", [], [[1, 2], [3]], {"a b": {"c": "d"}}])
def test_values_are_written_as_toml_reads_them(value):
    tomllib = pytest.importorskip("tomllib")
    assert tomllib.loads(f"x = {_toml.value(value)}")["x"] == value
    assert type(tomllib.loads(f"x = {_toml.value(value)}")["x"]) is type(value)


def test_an_operator_of_ones_own_is_an_expression(folder):
    """Compares pixels of `ops.Pointwise` with those of the same formula in NumPy."""
    numpy = pytest.importorskip("numpy")
    crop = ops.Crop(width=12, height=8)
    own = ops.Pointwise(expr="if(c == 1, sqrt(x), clamp(1.5 * abs(x - 0.25), 0, 0.9))")
    (before, _), (after, _) = (
        next(iter(fw.Loader(folder, chain, batch_size=4, dtype="u8", layout="nhwc", framework="numpy"))) for chain in ([crop], [crop, own])
    )
    x = before / 255
    expected = numpy.where(numpy.arange(3) == 1, numpy.sqrt(x), numpy.clip(1.5 * abs(x - 0.25), 0, 0.9))
    numpy.testing.assert_array_equal(after, numpy.floor(255 * expected + 0.5))
    with pytest.raises(fw.errors.ConfigError, match="y"):
        pipeline([ops.Pointwise(expr="y * 2")])


def test_bad_shards_are_errors_or_skipped_with_a_warning(folder, tmp_path_factory):
    shards = tmp_path_factory.mktemp("shards")
    images = sorted(path for path in folder.rglob("*") if path.is_file())[:4]
    for number in range(2):
        with tarfile.open(shards / f"{number}.tar", "w") as archive:
            for index, image in enumerate(images):
                archive.add(image, f"{index}{image.suffix}")
                label = tarfile.TarInfo(f"{index}.cls")
                label.size = 1
                archive.addfile(label, io.BytesIO(b"1"))
    damaged = shards / "1.tar"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    chain = [ops.Crop(width=12, height=8)]

    def loader(**settings):
        return fw.Loader(fw.webdataset(str(shards), **settings), chain, batch_size=1, framework="batch", dtype="u8")

    with pytest.raises(fw.errors.ConfigError, match=r"1\.tar"):
        loader()
    for policy in ["skip", "until_damage"]:
        with loader(on_bad_shard=policy) as loaded:
            assert len(list(loaded)) == 4
            assert any("1.tar" in warning and policy in warning for warning in loaded.warnings)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_location_names_the_member_of_an_archive(folder, tmp_path, mode):
    path = tmp_path / ("set.tar" if mode == "w" else "set.tar.gz")
    with tarfile.open(path, mode) as archive:
        for index, image in enumerate(sorted(folder.glob("*/*.ppm"))[:3]):
            archive.add(image, f"photos/{index}.ppm")
    chain = [ops.Crop(width=12, height=8)]
    with fw.Loader(fw.webdataset(str(path), label=""), chain, batch_size=3, framework="batch", dtype="u8") as loader:
        assert loader.location(1).endswith("[1] photos/1.ppm")
        (batch,) = loader
        assert [sample["location"].partition("] ")[2] for sample in batch.samples] == [f"photos/{index}.ppm" for index in range(3)]


def test_weights_are_any_positive_numbers_and_part_of_the_state(folder):
    source = fw.directory(folder)

    def loader(*weights):
        mixed = fw.mixture(source, source.select(skip=3), weights=weights, samples=12)
        return fw.Loader(mixed, [ops.Crop(width=12, height=8)], batch_size=4, framework="batch", dtype="u8")

    with loader(1 / 3, 2 / 3) as first:
        next(iter(first))
        state = first.state_dict()
    with loader(1, 2) as same:
        same.load_state_dict(state)
        assert len(list(same)) == 2
    with loader(1, 1) as other, pytest.raises(fw.errors.ConfigError, match="1 : 2.*1 : 1"):
        other.load_state_dict(state)
        list(other)
    with pytest.raises(fw.errors.ConfigError, match="finite"):
        loader(1, math.inf)
