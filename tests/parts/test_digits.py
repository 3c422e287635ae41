"""The scanned digits are those that scikit-learn gives, and scikit-learn is not imported."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from workloads.parts.datasets.digits import digits, package_file


def test_digits_are_those_of_scikit_learn() -> None:
    pixels, shown = digits()
    expected_pixels, expected_digits = load_digits(return_X_y=True)
    np.testing.assert_array_equal(pixels, expected_pixels)
    np.testing.assert_array_equal(shown, expected_digits)


def test_reading_them_imports_no_scikit_learn() -> None:
    code = (
        "import sys; from workloads.parts.datasets.digits import digits; digits(); "
        "print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_package_that_is_not_installed_is_missing_as_an_import_is() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'") as raised:
        package_file("no_such_package", "any")
    assert raised.value.name == "no_such_package"
