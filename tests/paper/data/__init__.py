"""Tests of the data sets and of how they are got."""
