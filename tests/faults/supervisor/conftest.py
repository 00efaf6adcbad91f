"""Fixtures of the campaigns against the supervisor: those of its other tests."""

from __future__ import annotations

from tests.runner.conftest import place, pytest_generate_tests

__all__ = ["place", "pytest_generate_tests"]
