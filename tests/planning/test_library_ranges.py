"""Which versions of libraries a case may run on, and what is said of one that may not."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.builders import a_case

from appliance import extras
from appliance.planning import library_ranges, workload_manifest
from appliance.planning.library_ranges import Stack
from appliance.records.qualified import Qualified, QualifiedRecord
from appliance.records.request import CaseRequest
from appliance.records.system import Fact
from appliance.vendors import registry

ALLOWED = {"torch": ">=2.13,<2.14", "transformers": ">=5.23,<6", "peft": ">=0.21.0,<0.22"}
HERE = {"torch": "2.13.0+cpu", "transformers": "5.23.0", "peft": "0.21.2"}
NEEDED = ("peft", "torch", "transformers")


def lack(known: Mapping[str, str] | None = None, **versions: str | None) -> str:
    installed = {**HERE, **versions}
    there = {name: version for name, version in installed.items() if version is not None}
    stacks = {} if known is None else {"llm_lora": ((known,),)}
    return Stack(allowed=ALLOWED, installed=there, known=stacks).lack("llm_lora", NEEDED)


@pytest.mark.parametrize("torch", ["2.13.0", "2.13.0+cpu", "2.13.1", "2.13.1a0+git1234"])
def test_what_is_in_its_range_lacks_nothing(torch: str) -> None:
    assert lack(torch=torch) == ""


@pytest.mark.parametrize(
    ("versions", "sentence"),
    [
        (
            {"transformers": "5.17.0"},
            'transformers 5.17.0 is outside >=5.23,<6: pip install "transformers>=5.23,<6"',
        ),
        (
            {"transformers": "6.0.1", "torch": "2.11.0+gpu"},
            (
                "torch 2.11.0+gpu is outside >=2.13,<2.14, transformers 6.0.1 is outside "
                '>=5.23,<6: pip install "torch>=2.13,<2.14" "transformers>=5.23,<6"'
            ),
        ),
        ({"torch": "mine"}, 'torch mine is outside >=2.13,<2.14: pip install "torch>=2.13,<2.14"'),
    ],
)
def test_what_is_outside_is_named_with_its_fix(versions: dict[str, str], sentence: str) -> None:
    assert lack(**versions) == sentence


def test_what_is_not_installed_is_named_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "parts", lambda: {"": (), "torch": ("torch",), "lora": ("peft",)})
    expected = 'not installed: peft: pip install "bench-appliance[lora]"'
    assert lack(peft=None, transformers="5.17.0") == expected


def test_stack_that_was_qualified_exactly_so_counts_as_inside() -> None:
    old = {"torch": "2.11.0+gpu", "transformers": "5.17.0", "peft": "0.21.2"}
    assert lack(**old)
    assert lack(known=old, **old) == ""
    assert lack(known={**old, "numpy": "2.0"}, **old) == ""  # beyond what the workload needs
    for name in old:  # whatever differs is another stack
        assert lack(known={**old, name: "1.0"}, **old)
    for name in ("torch", "transformers"):  # and what is outside must be named
        assert lack(known={other: old[other] for other in old if other != name}, **old)
    other = Stack(allowed=ALLOWED, installed=old, known={"bert": ((old,),)})
    assert other.lack("llm_lora", NEEDED)


def test_stack_must_be_qualified_for_every_model_and_this_version() -> None:
    old = {"torch": "2.11.0", "transformers": "5.17.0", "driver": "580"}
    record = QualifiedRecord(
        workload="bert",
        version=2,
        model="A",
        stack=old,
        form="deterministic",
        num_clean=100,
        devices=("d",),
        operators=(),
        sources=("s",),
        recorded_utc="2026-11-22T00:00:00Z",
        bench_version="0.5.0",
    )

    def is_inside(version: int, *models: str) -> bool:
        both = Qualified(
            record=(record, replace(record, model="B", stack={**old, "torch": "2.12"}))
        )
        known = library_ranges.known_stacks(both, {"bert": version}, models)
        stack = Stack(allowed=ALLOWED, installed={**old, "peft": "0.21.0"}, known=known)
        return not stack.lack("bert", ("torch", "transformers"))

    assert is_inside(2, "A")
    assert is_inside(2, "A", "A")
    assert not is_inside(1, "A")
    assert not is_inside(2, "B")
    assert not is_inside(2, "A", "B")
    assert not is_inside(2, "A", "C")


def test_versions_of_a_vendor_stand_beside_the_ranges() -> None:
    ranges = registry.libraries_of("xpu").ranges
    allowed = library_ranges.allowed(ALLOWED, ranges)
    assert allowed["torch"] == ">=2.13,<2.14 or ==2.8.0"
    assert allowed["transformers"] == ALLOWED["transformers"]
    for version, is_right in (("2.8.0", True), ("2.13.0", True), ("2.8.1", False), ("2.9", False)):
        stack = Stack(allowed=allowed, installed={"torch": version})
        output = f'torch {version} is outside {allowed["torch"]}: pip install "torch>=2.13,<2.14"'
        assert stack.lack("gemm", ("torch",)) == ("" if is_right else output)
    for name in registry.MODULES:
        assert (
            registry.libraries_of(name).onnx_provider
            == registry.make_vendor(name).onnx_providers()[0]
        )


def test_workload_needs_what_it_imports_and_what_it_follows_needs() -> None:
    manifest = workload_manifest.load()

    def needed(name: str, **parameters: str) -> set[str]:
        request = CaseRequest(workload=name, small=True, parameters=parameters)
        return {*library_ranges.libraries(request, manifest)}

    assert needed("gemm") == {"numpy", "torch"}
    assert {"torch", "transformers", "peft"} <= needed("llm_lora")
    assert "peft" not in needed("llm_full")
    assert {"onnx", "onnxruntime", "onnxscript"} <= needed("onnx_resnet50")
    assert "jax" in needed("loss_curve", workload="dqn")
    assert "jax" not in needed("loss_curve", workload="bert")
    assert needed("their.module") == {"torch"}


def test_plan_that_runs_beyond_its_ranges_is_found_by_the_recorded_versions() -> None:
    software = {name: Fact(value=version) for name, version in HERE.items()}
    software["transformers"] = Fact(value="5.17.0")
    software["jax"] = Fact(value=None, hint="jax is not installed")
    stack = Stack(allowed=ALLOWED, installed=library_ranges.installed(software))
    case = replace(a_case("llm_lora"), libraries=NEEDED)
    assert "transformers 5.17.0" in library_ranges.unplanned_lack(case, stack)
    output = replace(case, software="transformers 5.17.0 is outside")
    assert library_ranges.unplanned_lack(output, stack) == ""
    assert library_ranges.unplanned_lack(replace(case, libraries=("torch",)), stack) == ""
