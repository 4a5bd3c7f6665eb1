"""The study itself."""

from windermere.paper.studies.study import Study
from windermere.paper.studies.tied_sampler.runs import SAMPLES, TUNED, own_runs

TIED_SAMPLER = Study(
    name="tied-sampler",
    paper="ours",
    what="Flow-matching models that are tuned through the few steps of their sampler, and their flow before and after",
    tables=(TUNED, SAMPLES),
    own_runs=own_runs,
    draw=lambda tables, folder: [],
)
