"""The paper's Algorithms 2 and 3, each with a pair of its solvers."""

from windermere.adaptation import StepAdaptation, ToleranceAdaptation

EULER = StepAdaptation(train="euler", check="midpoint")
FEHLBERG = ToleranceAdaptation(train="fehlberg21")
