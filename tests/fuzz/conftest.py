"""Every fuzzed test runs under the profile that WINDERMERE_FUZZ names."""

from tests.fuzz import profiles

profiles.load()
