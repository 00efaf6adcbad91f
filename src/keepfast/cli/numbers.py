"""Numbers on the command line, called by their plain names where one is wrong."""

from __future__ import annotations

import click


class Whole(click.IntRange):
    name = "whole number"


class Number(click.FloatRange):
    name = "number"
