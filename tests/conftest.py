"""Hypothesis profiles, samples of parameter sets, and fixtures of every test."""

from __future__ import annotations

import gc
import hashlib
import os
import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from aclnn.core.products import set_soc_name, soc_name
from aclnn.kernels.cpu import threads
from aclnn.operators import BY_NAME
from tests.helpers.fresh_runtime import device, fresh  # noqa: F401  (fixtures)
from tests.helpers.stand_in_plan import without_kernels  # noqa: F401  (fixture)
from tests.helpers.toolkit_support import compiled, toolkit_root  # noqa: F401  (fixtures)

# HYPOTHESIS_PROFILE=thorough looks for longer; the default keeps the whole suite within minutes on two cores.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("quick", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile("thorough", max_examples=3000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_collection_finish() -> None:
    """Exclude tens of thousands of tests from later garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _the_product_stays() -> Iterator[None]:
    name = soc_name()
    yield
    set_soc_name(name)


@pytest.fixture
def usual_threads() -> Iterator[None]:
    """Restore the number of threads, which a test may change."""
    before = threads.shared().threads
    yield
    threads.set_threads(before)


_FIRST = (
    "test_torch_npu.py", "test_operators.py", "test_triton_kernels.py", "test_command.py", "test_programs.py",
    "test_elementwise.py", "test_embedding.py", "test_vector.py", "test_layer_norm.py", "test_report.py",
)  # fmt: skip
"""Files that take a minute or more: one process would end with them while the other waits."""


_SAMPLE = 3
"""Parameter sets of a test that ``--sample`` runs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample", action="store_true", help=f"leave out slow tests, and parameter sets of those with over {_SAMPLE}"
    )


def _sample(items: list[pytest.Item]) -> list[pytest.Item]:
    """Every n-th set of a test; of one over operators, one of each of the operators that other tests choose too.

    So that a fresh clone compiles few kernels.
    """
    of_operators: dict[str, list[pytest.Item]] = {}
    for item in items:
        name = next((part for part in re.split(r"[\[\]-]", item.name) if part in BY_NAME), "")
        of_operators.setdefault(name, []).append(item)
    if len(of_operators) > _SAMPLE:
        chosen = sorted(of_operators, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[:_SAMPLE]
        items = [of_operators[name][place % len(of_operators[name])] for place, name in enumerate(chosen)]
    return items[:: -(-len(items) // _SAMPLE)]


_ALTERNATING = {
    "test_edge_cases_are_computed",
    "test_any_layout_gives_the_same_results",
    "test_an_output_may_be_an_input",
    "test_any_mix_of_data_types_is_computed",
    "test_overlapping_outputs_are_as_if_inputs_had_been_read_first",
    "test_every_16_bit_value_is_correctly_rounded",
    "test_every_16_bit_derivative_is_correctly_rounded",
    "test_a_patched_module_trains_as_pytorchs_does",
    "test_opcheck_passes",
    "test_interpreted_kernels_match_the_cpu",
    "test_the_earlier_of_two_violations_is_reported",
    "test_no_sound_implementation_is_structurally_wrong",
}
"""Tests of every operator of which ``make test-all`` runs every third parameter set, and ``make long`` the others."""


class _Alternation:
    """Adds marks before -k and -m select tests."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for name in _ALTERNATING:
            of_test = [item for item in items if item.name.split("[")[0] == name]
            for at, item in enumerate(of_test):
                if at % 3:
                    item.add_marker(pytest.mark.long)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Alternation(), "alternation")


@pytest.hookimpl(trylast=True)  # after -k and -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _FIRST.index(item.path.name) if item.path.name in _FIRST else len(_FIRST))
    if not config.getoption("sample"):
        return
    of_tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            of_tests.setdefault(item.nodeid.split("[")[0], []).append(item)
    kept = {item for found in of_tests.values() for item in _sample(found)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
