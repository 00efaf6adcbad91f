"""Types of numbers on the command line, with plain names for error messages."""

from __future__ import annotations

import click


class Whole(click.IntRange):
    name = "whole number"


class Number(click.FloatRange):
    name = "number"
