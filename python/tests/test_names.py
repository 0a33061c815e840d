"""Tests of the names of the loader's parameters: other names, groups of settings, and errors that suggest similar names."""

import inspect
import pathlib
import pydoc
import re
import textwrap
import typing

import feedwater as fw
import pytest
from feedwater import _feedwater, _foreign, _names, sections

CROP = [fw.ops.Crop(width=4, height=4)]
GROUPS = [fw.Cache, fw.Decode, fw.Limits, fw.LoaderSettings, fw.Output, fw.Storage, fw.Targets]
#: For each parameter that has other names: a value, and the line of a pipeline file that this value becomes.
VALUES = {
    "transform": (CROP, 'op = "crop"'),
    "batch_size": (3, "batch_size = 3"),
    "num_workers": (2, "num_workers = 2"),
    "prefetch": (4, "prefetch = 4"),
    "last_batch": ("pad", 'last_batch = "pad"'),
    "shuffle": (True, "shuffle = true"),
    "rank": (1, "rank = 1"),
    "world_size": (2, "world_size = 2"),
}


def text(folder, **given):
    """Returns all settings of a loader with these arguments, as a pipeline file."""
    if not {"rank", "shard_id"} & given.keys() and {"world_size", "world", "num_shards"} & given.keys():
        given["rank"] = 0
    if {"rank", "shard_id"} & given.keys() and not {"world_size", "world", "num_shards"} & given.keys():
        given["world_size"] = 2
    if not {"transform", "chain", "transforms"} & given.keys():
        given["transform"] = CROP
    loader = given.get("loader", {})
    of_loader = loader.settings() if isinstance(loader, fw.LoaderSettings) else loader
    if not {"batch_size", "batch", "max_batch_size"} & {*given, *of_loader}:
        given["batch_size"] = 4
    with fw.Loader(folder, framework="batch", device="cpu", **given) as loader:
        return loader.settings()


def refused(folder, error=TypeError, **given):
    with pytest.raises(error) as raised:
        fw.Loader(folder, framework="batch", device="cpu", **given)
    return str(raised.value)


@pytest.mark.parametrize(("alias", "name"), _names.ALIASES.items())
def test_other_names_mean_the_same(folder, alias, name):
    value, line = VALUES[name]
    named = text(folder, **{name: value})
    assert line in named
    assert text(folder, **{alias: value}) == named
    words = refused(folder, **{alias: value, name: value})
    assert alias in words and name in words
    # Type checkers accept the alias too.
    assert alias in typing.get_type_hints(_names.MoreParameters, localns={"Column": object, "View": object, "Operator": object, "Loader": object})


def test_type_checkers_know_all_other_names():
    declared = set(_names.MoreParameters.__annotations__)
    assert declared == set(_names.ALIASES) | set(_names.RARE)


def test_two_other_names_of_one_parameter_are_refused(folder):
    words = refused(folder, batch=3, max_batch_size=3)
    assert all(word in words for word in ("batch", "max_batch_size", "batch_size"))
    # A parameter that is given with its default value counts as given.
    refused(folder, batch_size=64, batch=3)


def test_the_last_batch_is_a_switch_or_a_policy(folder):
    for drop_last, last_batch in [(True, "drop"), (False, "partial")]:
        assert text(folder, drop_last=drop_last) == text(folder, last_batch=last_batch)
    assert text(folder) == text(folder, drop_last=True)
    evaluation = fw.eval_recipe(4)
    assert 'last_batch = "partial"' in text(folder, transform=evaluation)
    assert 'last_batch = "drop"' in text(folder, transform=evaluation, drop_last=True)
    for given in [{"last_batch": "drop"}, {"last": "drop"}, {"last_batch_policy": "DROP"}]:
        words = refused(folder, drop_last=True, **given)
        assert "drop_last" in words and next(iter(given)) in words
    words = refused(folder, drop_last="partial")
    assert "drop_last" in words and "last_batch" in words
    refused(folder, drop_last=True, loader={"last": "pad"})


def test_policies_of_dali_are_accepted(folder):
    class Policy:
        name = "PARTIAL"

    assert text(folder, last_batch_policy=Policy()) == text(folder, last_batch="partial")
    assert text(folder, last_batch_policy="LastBatchPolicy.DROP") == text(folder, last_batch="drop")
    assert "pad" in refused(folder, ValueError, last_batch_policy="FILL")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("batchsize", "batch_size"),
        ("batch_sise", "batch_size"),
        ("worker", "num_workers"),
        ("num_worker", "num_workers"),
        ("transfrom", "transform"),
        ("droplast", "drop_last"),
        ("shufle", "shuffle"),
        ("world_sise", "world_size"),
        ("postions", "positions"),
        ("prescale", "decode=fw.Decode(prescale=...)"),
        ("prescal", "decode=fw.Decode(prescale=...)"),
        ("repeats", "loader=fw.LoaderSettings(repeats=...)"),
        ("host_memory", "limits=fw.Limits(host_memory=...)"),
        ("decooded", "cache=fw.Cache(decoded=...)"),
        ("maax_side", "limits=fw.Limits(max_side=...)"),
        ("shufle_window", "loader=fw.LoaderSettings(shuffle_window=...)"),
        ("num_thread", "did you mean num_workers"),
        ("sede", "did you mean seed"),
    ],
)
def test_unknown_names_get_the_nearest(folder, name, nearest):
    words = refused(folder, **{name: 1})
    assert name in words and nearest in words


@pytest.mark.parametrize("name", _foreign.PARAMETERS)
def test_names_of_other_loaders_get_what_to_do(folder, name):
    words = refused(folder, **{name: None})
    assert words == f"fw.Loader has no parameter {name}; {_foreign.PARAMETERS[name]}"


@pytest.mark.parametrize("name", ["xyzzy", "tests", "lr", "model", "optimizer", "sharding", "file", "size", "mode"])
def test_a_name_like_none_lists_the_parameters(folder, name):
    words = refused(folder, **{name: 1})
    assert "did you mean" not in words and "batch_size" in words and "num_workers" in words


@pytest.mark.parametrize(
    ("first", "second", "edits"), [("", "abc", 3), ("seed", "seed", 0), ("sede", "seed", 1), ("sed", "seed", 1), ("sead", "seed", 1), ("kitten", "sitting", 3)]
)
def test_edits_are_counted(first, second, edits):
    assert _names._edits(first, second) == _names._edits(second, first) == edits


def test_what_is_advised_exists():
    """Checks the advice: names before ``=`` are parameters of the loader, and names inside of ``fw.Group(...)`` are settings
    of this group."""
    parameters = {*inspect.signature(fw.Loader).parameters, *_names.RARE}
    for advice in _foreign.PARAMETERS.values():
        for group, fields in re.findall(r"fw\.(\w+)\(([^)]*)\)", advice):
            assert {field for field in re.findall(r"(\w+)=", fields)} <= set(_names.settings_of(getattr(fw, group)))
        outside = re.sub(r"fw\.\w+\([^)]*\)|source\.select\([^)]*\)", "", advice)
        assert set(re.findall(r"(\w+)=", outside)) <= parameters, advice


def keys(section):
    """Returns the keys that the compiled part accepts in a section, read from its error for an unknown key."""
    with pytest.raises(fw.errors.ConfigError) as raised:
        _feedwater.Pipeline.from_toml(f'source = {{directory = "a"}}\n[{section}]\nqqqqqqqqqqqqqqqqqqqq = 1\n', ".")
    return str(raised.value).partition("the known keys are ")[2].split(", ")


@pytest.mark.parametrize("group", GROUPS, ids=lambda it: it.__name__)
def test_a_group_has_every_key_of_its_section(group):
    assert sorted(group.FIELDS) == sorted(keys(group.SECTION))
    parameters = inspect.signature(group.__init__).parameters
    assert tuple(name for name in parameters if name != "self") == group.FIELDS
    documented = re.findall(r"``(\w+)``", group.__doc__)
    assert set(group.FIELDS) <= set(documented)


def test_groups_are_the_parameters_of_sections():
    assert {it.SECTION: it for it in GROUPS} == sections.SECTIONS
    assert sections.SECTIONS.keys() <= inspect.signature(fw.Loader).parameters.keys()


def test_former_keys_are_those_of_the_pipeline_file(folder):
    for former, today in sections._FORMER.items():
        value, line = VALUES[today]
        assert line in text(folder, loader={former: value, **({} if today != "world_size" else {"rank": 0})})
        with pytest.raises(TypeError, match=today):
            text(folder, loader={former: value, today: value})


def test_groups_and_mappings_are_the_same(folder):
    given = {
        "decode": fw.Decode(prescale=True, routes=["cpu"]),
        "output": fw.Output(dtype="u8", layout="nhwc"),
        "targets": fw.Targets(classes=2, smoothing=0.5),
        "cache": fw.Cache(encoded="1 MiB", row_index=0),
        "limits": fw.Limits(max_side=100, host_memory="2 GiB", overcommit=True),
        "storage": fw.Storage(connections=3, map=False),
        "loader": fw.LoaderSettings(tune=False, shard="none", batch_size=7),
    }
    settings = text(folder, **given)
    assert settings == text(folder, **{name: group.settings() for name, group in given.items()})
    for line in ("prescale = true", 'dtype = "u8"', "smoothing = 0.5", "max_side = 100", "connections = 3", "batch_size = 7", "tune = false"):
        assert line in settings
    # These settings may be given in a group or as parameters of the loader.
    assert text(folder, targets=fw.Targets(classes=2, smoothing=0.5)) == text(folder, classes=2, smoothing=0.5)
    assert text(folder, output=fw.Output(dtype="u8", layout="nhwc")) == text(folder, dtype="u8", layout="nhwc")


def test_a_setting_is_given_once(folder):
    for given in [
        {"targets": fw.Targets(classes=2), "classes": 2},
        {"output": {"dtype": "u8"}, "dtype": "u8"},
        {"loader": {"batch": 3}, "batch_size": 3},
        {"loader": fw.LoaderSettings(seed=1), "seed": 2},
    ]:
        words = refused(folder, **given)
        assert all(name in words for name in given if name not in ("targets", "output")), words
    # Settings of a recipe are only defaults, so the loader's arguments take precedence.
    assert "shuffle = false" in text(folder, transform=fw.train_recipe(4), loader={"shuffle": False})


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        ({"drop_last": True, "loader": {"last": "pad"}}, "as drop_last and as last in loader"),
        ({"batch": 3, "loader": {"batch_size": 3}}, "as batch and as batch_size in loader"),
        ({"num_threads": 3, "loader": fw.LoaderSettings(num_workers=3)}, "as num_threads and as num_workers in loader"),
        ({"loader": {"batch": 3, "batch_size": 3}}, "as batch and as batch_size"),
        ({"batch": 3, "loader": {"batch_size": 3, "batch": None}}, "as batch and as batch_size in loader"),
    ],
)
def test_a_conflict_names_the_keys_that_were_written(folder, given, keys):
    assert keys in refused(folder, **given)


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        (lambda: fw.LoaderSettings(batch=1), "did you mean batch_size"),
        (lambda: fw.LoaderSettings(max_batch_size=1), "did you mean batch_size"),
        (lambda: fw.LoaderSettings(drop_last=True), "did you mean last_batch"),
        (lambda: fw.LoaderSettings(shufle=True), "did you mean shuffle"),
        (lambda: fw.ops.Flip(horizontall=0.5), r"fw\.ops\.Flip has no setting horizontall; did you mean horizontal"),
        (lambda: fw.ops.ColorJitter(p=0.5, brightnes=1), "did you mean|its settings are"),
        (lambda: fw.ops.RandomApply([], p=0.5), "did you mean probability"),
        (lambda: fw.ops.Invert(strength=1), r"its settings are placement"),
        (lambda: fw.ops.Mixup(alfa=1), r"fw\.ops\.Mixup has no setting alfa"),
        (lambda: fw.directory("data", extension=["jpg"]), r"fw\.directory has no setting extension; did you mean extensions"),
        (lambda: fw.directory("data", class_to_idx={}), "did you mean class_to_index"),
        (lambda: fw.train_recipe(224, sclae=(0.2, 1)), r"fw\.train_recipe has no setting sclae; did you mean scale"),
        (lambda: fw.samples([b""], lables=[1]), r"fw\.samples has no setting lables; did you mean labels"),
        (lambda: fw.mixture(fw.directory("a"), wieghts=[1]), "did you mean weights"),
        (lambda: fw.directory("data").select(tkae=3), "select has no setting tkae; did you mean take"),
        (lambda: fw.dataset([], imag="x"), "did you mean image"),
        (lambda: fw.from_torchvision([], keep_rests=True), "did you mean keep_rest"),
        (lambda: fw.eval_recipe(224, crop=3), "its settings are size, resize, mean, std"),
    ],
)
def test_other_settings_get_the_nearest(wrong, advice):
    with pytest.raises(TypeError, match=advice):
        wrong()


@pytest.mark.parametrize("name", _foreign.OPERATORS)
def test_operators_of_other_libraries_get_what_to_write(name):
    advice = _foreign.OPERATORS[name]
    with pytest.raises(AttributeError, match=re.escape(f"no operator {name}; {advice}")):
        getattr(fw.ops, name)
    for operator, settings in re.findall(r"fw\.ops\.(\w+)(?:\(([^)]*)\))?", advice):
        assert operator in fw.ops.__all__
        assert set(re.findall(r"(\w+)=", settings)) <= set(getattr(fw.ops, operator).FIELDS)


def test_unknown_operators_get_the_nearest():
    for name, advice in [("Flipp", r"did you mean fw\.ops\.Flip"), ("ColourJitter", r"fw\.ops\.ColorJitter"), ("Xyzzy", "lists the operators")]:
        with pytest.raises(AttributeError, match=f"no operator {name}; .*{advice}"):
            getattr(fw.ops, name)
    assert not hasattr(fw.ops, "__wrapped__")
    for name, advice in [("DataLoader", "did you mean Loader"), ("LoaderSetting", "did you mean LoaderSettings"), ("Xyzzy", "'Xyzzy'$")]:
        with pytest.raises(AttributeError, match=advice):
            getattr(fw, name)
    with pytest.raises(TypeError, match=r"fw\.Recipe has no setting section; did you mean sections"):
        fw.Recipe([], section={})


def test_groups_refuse_what_they_do_not_have(folder):
    with pytest.raises(TypeError, match=r"fw\.Decode has no setting prescal; did you mean prescale\?"):
        fw.Decode(prescal=True)
    with pytest.raises(TypeError, match="row_index"):
        fw.Cache(qqqqqq=1)
    assert "fw.Decode" in refused(folder, decode=fw.Cache())
    assert "fw.Limits" in refused(folder, limits=3)
    # The compiled part checks the values of settings.
    assert "decode.jpeg" in refused(folder, fw.errors.ConfigError, decode=fw.Decode(jpeg="other"))


def test_groups_compare_and_print():
    assert repr(fw.Decode(prescale=True, jpeg="libjpeg")) == "Decode(prescale=True, jpeg='libjpeg')"
    assert repr(fw.Limits()) == "Limits()"
    assert fw.Cache(encoded=1) == fw.Cache(encoded=1) != fw.Cache(encoded=2)
    assert fw.Cache(encoded=1) != fw.Limits(max_side=1)


def test_help_fits_two_screens():
    signature = textwrap.wrap(f"__init__{inspect.signature(fw.Loader.__init__)}", 95)
    lines = fw.Loader.__doc__.splitlines() + signature
    assert len(lines) <= 100
    for kind in [fw.Loader, *GROUPS]:
        # `help` prints each line behind a bar, so lines must be shorter than 100 columns.
        assert all(len(line) <= 95 for line in inspect.getdoc(kind).splitlines()), kind
    shown = pydoc.plain(pydoc.render_doc(fw.Decode))
    assert "prescale" in shown and "Default: False" in shown


def test_the_paths_of_a_source_may_be_a_list():
    paths = ["a.tar", pathlib.Path("b.tar")]
    assert fw.webdataset(paths, label="").settings() == fw.webdataset(*paths, label="").settings()
    assert fw.tfrecord(tuple(paths)).settings() == fw.tfrecord(*paths).settings()
