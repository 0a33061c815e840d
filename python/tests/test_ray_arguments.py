"""Tests of the arguments of `fw.ray`, which must mean the same as those of a loader. They need Ray, and only the last starts tasks."""

import pytest

pytest.importorskip("ray")
pytest.importorskip("pyarrow")

import feedwater as fw  # noqa: E402

CROP = [fw.ops.Crop(width=4, height=4)]


def made(folder, transform=CROP, **given):
    return fw.ray.Datasource(folder, transform, **given)


def refused(folder, transform=CROP, **given):
    """Returns the message of the error, which :func:`fw.ray.read` must raise too."""
    messages = []
    for function in (fw.ray.Datasource, fw.ray.read):
        with pytest.raises((TypeError, ValueError)) as raised:
            function(folder, transform, **given)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    return messages[0]


@pytest.mark.parametrize(
    "given", [{"batch_size": 16, "batch": 50}, {"batch_size": 4, "max_batch_size": 2}, {"batch_size": 64, "batch": 2}, {"chain": CROP}, {"transforms": CROP}]
)
def test_an_argument_is_given_once(folder, given):
    alias = list(given)[-1]
    assert f"{alias} and " in refused(folder, **given) and "are the same parameter" in refused(folder, **given)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"loader": {"shard": "torchrun"}}, "loader.shard"),
        ({"loader": fw.LoaderSettings(shard="slurm")}, "loader.shard"),
        ({"loader": {"rank": 0, "world_size": 2}}, "loader.rank"),
        ({"loader": {"world": 2}}, "loader.world_size"),
        ({"transform": fw.Recipe(CROP, {"loader": {"rank": 0, "world_size": 2}})}, "loader.rank"),
        ({"shard_id": 0}, "shard_id: rank"),
        ({"positions": (0, 4)}, "positions"),
    ],
)
def test_what_read_tasks_set_is_refused_by_name(folder, given, name):
    message = refused(folder, **{"batch_size": 4, **given})
    assert message.startswith(f"{name} cannot be set, because Ray divides the set") and "loader.shard;" not in message


def test_none_means_not_given(folder):
    nothing = dict.fromkeys(["epoch", "epochs", "num_gpus", "threads", "num_threads", "batch", "rank", "device", "state", "fields"])
    assert made(folder, batch_size=4, **nothing)._job.text == made(folder, batch_size=4)._job.text
    assert '"num_workers" = 1' in made(folder, batch_size=4, num_threads=None)._job.text
    assert '"num_workers" = 3' in made(folder, batch_size=4, threads=3, num_workers=None, loader={"workers": None})._job.text
    with pytest.raises(fw.errors.ConfigError, match="batch_size: is 64"):
        made(folder, batch_size=None)
    made(folder, batch_size=4, loader={"shard": "none"})


def test_groups_and_recipes_set_what_a_loader_would_use(folder):
    for given in ({"loader": {"batch_size": 2}}, {"loader": fw.LoaderSettings(batch_size=2)}, {"transform": fw.Recipe(CROP, {"loader": {"batch_size": 2}})}):
        source = made(folder, **given)
        assert source._job.batch == source._order.batch == 2 and '"batch_size" = 2' in source._job.text
    assert '"num_workers" = 2' in made(folder, fw.Recipe(CROP, {"loader": {"num_workers": 2}}), batch_size=4)._job.text
    assert "twice, as batch_size and as batch in loader" in refused(folder, batch_size=4, loader={"batch": 2})
    assert "did you mean prescale" in refused(folder, batch_size=4, decode={"prescal": None})


@pytest.mark.parametrize(
    "given", [{"epochs": "2"}, {"epochs": 1.5}, {"epoch": "1"}, {"epoch": -1}, {"num_gpus": "1"}, {"num_gpus": float("nan")}, {"num_gpus": True}]
)
def test_numbers_are_named(folder, given):
    ((name, value),) = given.items()
    assert f"{name} is {value!r}" in refused(folder, batch_size=4, **given)


def test_the_number_of_cores_is_named(folder):
    with pytest.raises(ValueError, match="num_cpus is '1'"):
        fw.ray.read(folder, CROP, batch_size=4, num_cpus="1")
    with pytest.raises(TypeError, match="write num_cpus="):
        fw.ray.read(folder, CROP, batch_size=4, threads=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tasks": "3"}, "tasks is '3'"),
        ({"samples_per_task": 1.5}, "samples_per_task is 1.5"),
        ({"num_cpus": "1"}, "num_cpus is '1'"),
        ({"shorter": "8"}, "shorter is '8'"),
        ({"quality": 101}, "quality is 101"),
        ({"shard_bytes": "1 MiB"}, "shard_bytes is '1 MiB'"),
        ({"decode": 3}, r"decode is 3; it must be fw\.Decode"),
        ({"limits": fw.Decode()}, r"limits is .* it must be fw\.Limits"),
        ({"decode": {"prescal": None}}, "did you mean prescale"),
        ({"num_workers": 3}, r"fw\.ray\.pack has no setting num_workers"),
    ],
)
def test_arguments_of_a_pack_are_named(folder, tmp_path, given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fw.ray.pack(folder, tmp_path / "shards", **given)


def test_a_pack_takes_groups(folder, tmp_path, cluster):
    groups = {"decode": fw.Decode(prescale=False), "limits": fw.Limits(max_side=100), "storage": fw.Storage(retries=1)}
    options = {"tasks": 1, "num_cpus": 1}
    packed = [
        fw.ray.pack(folder, tmp_path / name, **given, **options)
        for name, given in [("groups", groups), ("tables", {name: group.settings() for name, group in groups.items()})]
    ]
    assert packed[0] == packed[1] and packed[0]["shards"]
