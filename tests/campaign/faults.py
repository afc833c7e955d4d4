"""All kinds of faults: those of docs/how-to/operations.md, and what has gone wrong before. Each leaves everything as it was."""

from tests.campaign import faults_around, faults_in_data, faults_of_others
from tests.campaign.kinds import KINDS, Kind

__all__ = ["KINDS", "Kind", "faults_around", "faults_in_data", "faults_of_others"]
