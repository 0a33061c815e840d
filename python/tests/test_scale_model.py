"""Tests of the model behind docs/distributed.md: the page shows the program's output, and the formulas are correct."""

import importlib.util
import pathlib
import sys

import pytest

pytest.importorskip("tomllib", reason="needs Python 3.11")

ROOT = pathlib.Path(__file__).parents[2]


def loaded():
    """Loads the program `benches/scale_model.py`, which belongs to no package, as a module."""
    spec = importlib.util.spec_from_file_location("scale_model", ROOT / "benches" / "scale_model.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


model = loaded()
inputs = model.read(ROOT / "benches" / "scale_model.toml")


def test_the_page_shows_the_programs_tables():
    page = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
    assert model.filled(page, model.tables(inputs)) == page, "run benches/scale_model.py --write docs/distributed.md"


def test_another_input_changes_the_page():
    page = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
    assert model.filled(page, model.tables(inputs.changed("photo.core_us", 342))) != page


def test_a_page_without_a_place_for_a_table_is_an_error():
    with pytest.raises(ValueError, match="no place for .*sensitivity"):
        model.filled("", model.tables(inputs))
    with pytest.raises(ValueError, match="'speed'"):
        model.filled("<!-- scale_model: speed --><!-- end -->", model.tables(inputs))


def test_wrong_inputs_are_named():
    entry = {"value": 3, "low": 1, "high": 2, "unit": "s", "kind": "assumption", "source": "none"}
    with pytest.raises(ValueError, match=r"model.step: the value 3 is not between low \(1\) and high \(2\)"):
        model.Inputs({"model": {"step": entry}})
    with pytest.raises(ValueError, match="model.step: kind is 'guess'"):
        model.Inputs({"model": {"step": {**entry, "kind": "guess"}}})
    with pytest.raises(ValueError, match="model.step has the keys"):
        model.Inputs({"model": {"step": {"value": 3}}})


def test_the_share_of_misses_is_the_average_over_the_epochs():
    for machines, epochs in [(1, 30), (8, 30), (128, 30), (128, 1)]:
        average = sum((1 - 1 / machines) ** epoch for epoch in range(epochs)) / epochs
        assert model.missed(machines, epochs) == pytest.approx(average)


def test_loads_by_hand():
    at = model.outcome(inputs, "direct", 8, "photo")
    # The job needs 24,000 images/s x (341 + 50 + 37.7) microseconds on 72 cores, and one storage request per image. The storage serves 55,000 requests/s.
    assert at.cores == pytest.approx(24_000 * (341 + 50 + 8 * 94_162 / 20e3) * 1e-6)
    assert at.loads["cores of GPU machines"] == pytest.approx(at.cores / 72)
    assert at.loads["storage requests"] == pytest.approx(24_000 / 55_000)
    assert at.dollars == pytest.approx(0.4), "no GPU waits, so only requests have a cost"
    # 64 GPUs need 192,000 requests/s, but the storage serves 55,000. So eight machines at 60 dollars per hour wait 2.49 times as long as they work.
    busy = model.outcome(inputs, "direct", 64, "photo")
    assert busy.first == "storage requests"
    assert busy.dollars == pytest.approx(0.4 + (192 / 55 - 1) * 1e6 / 192_000 * 8 * 60 / 3600)
    tensors = model.outcome(inputs, "cpu machines", 8, "photo")
    assert tensors.cpu_machines == pytest.approx(24_000 * 8 * 301_056 / 12.5e9), "the network determines the number of machines"


def test_more_of_a_resource_never_costs_more():
    for kind in model.IMAGES:
        for gpus in model.GPUS:
            for name in ("gpu_machine.cores", "gpu_machine.nic_gbit", "gpu_machine.disk_gb_per_s", "storage.requests", "storage.gbit"):
                more = inputs.changed(name, 2 * inputs(name))
                for placement in model.PLACEMENTS:
                    before, after = (model.outcome(it, placement, gpus, kind).dollars for it in (inputs, more))
                    assert after <= before + 1e-9, (kind, gpus, name, placement)


def test_a_set_that_does_not_fit_on_the_disks_is_refused():
    assert model.outcome(inputs, "copied", 1, "camera").refused
    assert not model.outcome(inputs, "copied", 8, "camera").refused
    assert model.cheapest(inputs, 1, "camera", ("copied", "direct")).placement == "direct"


def test_the_answers_in_prose_are_the_models():
    page = " ".join((ROOT / "docs" / "distributed.md").read_text(encoding="utf-8").split())
    small, large = (model.outcome(inputs, "direct", 8, kind).cores for kind in ("photo", "camera"))
    assert f"needs {small:.0f} of its 72 cores" in page and f"would need {large:.0f} cores" in page
    assert f"With 128 machines and 30 epochs, {100 * model.missed(128, 30):.0f} % of the reads miss" in page
    prefix, gpu = 5_500, inputs("model.rate_per_gpu")
    assert 1 < prefix / gpu < 2 and int(10 * prefix / gpu) == 18

    def shares(kind, cores):
        packed = model.outcome(inputs, "packed small", 8, kind).cores
        return 100 * packed / cores, 100 * inputs(f"{kind}.packed_bytes") / inputs(f"{kind}.bytes")

    (cores, size), (large_cores, large_size) = shares("photo", small), shares("camera", large)
    assert f"need {cores:.0f} % of the cores and {size:.0f} % of the bytes for 500x375, and {large_cores:.0f} % and {large_size:.0f} %" in page
    for gpus in model.GPUS:
        assert model.outcome(inputs, "cpu machines", gpus, "photo").dollars > model.outcome(inputs, "direct", gpus, "photo").dollars
        assert model.cheapest(inputs, gpus, "photo").placement == model.cheapest(inputs, gpus, "camera").placement == "packed small"
        assert gpus > 8 or model.exact(inputs, gpus, "camera") == "cpu machines"
