"""What the page of results says besides what is made of tables: its introduction, and how claims are judged."""

INTRO = """\
# Results

Every experiment of the paper that was rerun, in its order: the paper's claims, our numbers beside them, and whether
they agree. `windermere study summary` writes this page from the tables, figures and provenance in `results/`.
"""
LEGEND = """\
- **agrees**, **differs**: by the [tests](#how-claims-are-judged) below.
- **open**: the tests do not tell. A claim about a whole grid is open until all its runs are there.
- **(one seed)**, **(a rate that is not printed)**: judged by the means alone, or about something that the paper does
  not have. These are counted apart, and in no other column.
- **ours**: the paper does not show it, so it is not judged.
"""
GLANCE = """\
Trained with few evaluations of the field, models lose accuracy under a finer solver: they are tied to their own.
Trained with enough of them, they lose none. (The exceptions are dopri54 on MNIST, on CIFAR-10 at 1e-4, and with the
adjoint.) Each line is a method, each point a step or tolerance of training: the mean over the seeds that trained, with
a bar from the least to the most. The finer solver is rk4 at half the step, or dopri54 at a tenth of the tolerance.
"""
SHORT = """\
The paper's claims about training: how many of their cases agree with ours, and which do not.
"""
RULES = """\
## How claims are judged

A claim **agrees** where a test over seeds shows it at the level of 0.05, **differs** where a test shows its opposite,
and is **open** where neither is shown. Nothing corrects for how many claims there are: of twenty tests about one is
wrong by chance.

- An **accuracy** agrees with a printed one if both are equivalent to within a point: two one-sided tests (TOST) with
  Welch's standard error and degrees of freedom. It differs if Welch's test finds a difference. A point is about what
  seeds spread by in the paper. (A rule that adds up spreads would reward noise.) **As accurate** as another: no more
  than a point below (one side of the same test).
- A **cost** agrees if its logarithm is equivalent to that of the printed one, to within a quarter; the printed one has
  no spread, so this is a t-test of ours. It costs **no more** if it is dearer by less than a quarter.
- A **critical number of steps** agrees within a factor of two. That is no test: a bracket has no spread.
- Accuracy **drops** if it falls by more than 0.1, the threshold of Algorithm 2: a one-sided t-test over seeds, its
  p-value times the number of entries of which the largest drop was taken; and the finest entry has to stay below 0.1.
  Entries of one seed are left out of this, unless there is nothing else.
- **No clear dependence**: for each seed the line through its accuracies, over the logarithm of steps or tolerances.
  The changes over all of the grid are equivalent to none, to within 2 points (TOST over seeds), or it differs if they
  are not zero (t-test) and 2 points or more in the mean. The margin is what seeds differ by on Sphere2. A range of
  means would not do: seeds alone make it grow with the number of entries. Only where means are more than 0.1 apart, the
  threshold of Algorithm 2, it differs whatever the lines say.
- A **decline**, and **lower**: seed by seed, one half of the grid against the other (t-test), by more than 0.01 in the
  mean. Seeds share weights and batches, so they are paired. Large tolerances are the coarse half of a grid, small ones
  the fine half.
- A **very high** accuracy is above 0.95 (one-sided t-test).
- Adaptation has **settled** in the second half of training, Algorithms 2 and 3 from their first correction on.
- To **fluctuate to the end** is a property of a seed: log2 of its steps deviates, around the line through them, by
  more than one raise of Algorithm 2 does (a factor of 1.1: 0.14), and changes its direction at least twice in the
  second half of the time since it settled. A drift does not fluctuate, nor does what has come to rest: of our steady
  controllers most do not. It agrees if all seeds do, and differs if fewer than half do.
- Final values are **different** if seeds differ by more than the two halves of the time since each of them settled (an
  analysis of variance).
- Adapted models are **flows** if the [audit](audit.md) of every seed says FLOW. It differs if one is TIED; UNDECIDED
  leaves it open. On images there are no audits (an exact flow would take hours), and the finer solvers of the tests
  must stay within 0.1 for every seed.
- That a model is **corrected** is not told by reviews that pass after failed ones, since these look with half the
  step: [smaller-step-sphere2](#smaller-step-sphere2) asks it with a control.
- A first step is **too small** if training takes more than twice the evaluations per iteration that it takes once
  settled (t-test of logarithms). **Far fewer** steps are fewer than half (Welch's test of logarithms).
- **Apart** are claims that rest on one seed, for which there is no test (they are judged by their means), and runs
  with CIFAR-10's learning rate of 1e-4, which the paper does not print. They are in no count of what agrees or
  differs.

## Where the paper is silent, or prints two things

- **Critical step** of a grid: the smallest number of steps (largest tolerance) from which on all models pass the check
  of Algorithm 2 on the test set, in the mean over the seeds that trained. It is given with the last entry that fails:
  4-8 says that 4 steps fail, and that 8 and more pass. Grids are checked by the finest solver of their tests (rk4 at
  half the step, dopri54 at a tenth of the tolerance), Table 1 by Algorithm 2's own, which is midpoint. The algorithm
  itself looks at training batches: [critical-steps](#critical-steps) has that, and other rules, side by side.
- **Methods**: the torchdiffeq of the paper's time had another `rk4` (the 3/8 rule) and another `fehlberg2`, which took
  its third stage for the next step's first one, though it is the field at another point. Until August 2020 its `dopri5`
  differentiated its choice of steps, too. Ours are the classical rk4, a correct fehlberg21, and a dopri54 whose steps
  are constants to the gradient. [Sphere2 was trained with theirs](#sphere2-adaptive), too.
- **Tolerances** of grids: 1e-1 to 1e-6, as far as they train, and to 1e-4 on images. **rk4 on images**: 1 to 16 steps.
  The **adjoint** is solved with the forward's tolerance. Nothing is tested with a step longer than the time span.
- **Arithmetic** on images: [bfloat16 products](runs.md#arithmetic) in training and in tests, where a section says so.
  Elsewhere float32. Trainings in float32 beside these, at CIFAR-10's printed rate, are missing.
- **Spheres**: the paper prints neither radii nor numbers of points (ours: [Sphere2](#sphere2-data)). **Sphere3, 10 and
  900** take Sphere2's settings. Sphere900 takes 2000 iterations, since it is costly: [too few for one seed of
  five](#sphere900-fixed).
- **A seed** draws weights (Kaiming normal, biases zero) and the order of batches. All seeds have the same data. Pixels
  lie in [0, 1], and nothing is augmented.
- **Iterations** on images are whole epochs with the last batch dropped: 30 x 234 and 40 x 195.
- **CIFAR-10's learning rate** is printed as 1e-3. The printed accuracies lie between ours with 1e-3 and with 1e-4, so
  both are run. (Of adapted runs, Table 1's pair has both, the others have 1e-3.)
- **Algorithm 2**: in the appendix's listing `h = h_new` stands in one branch only. Ours assigns in both. The step goes
  no lower than 1/500 (the authors' budget). **Algorithm 3**: the training tolerance goes no lower than 2.5e-7, which
  float32 resolves. Checks below that are solved in float64.
- **Cost** is evaluations of the field per iteration, those of all checks included. The paper's Table 1 counts one more
  than the steps.
- **Figure 1** does not print its small step. Ours is 1/128. **Figure 3** names no parameters. Ours are alpha 1.30,
  beta 0.30, gamma 4.3, delta 1.61, T = 1. **Appendix A** starts its second set of points at x = 1.5 in the caption and
  at 1.4 in the text. Ours starts at 1.5. **Figure 5** does not say what (c, d) were trained on. Ours is Sphere2.
- **Seeds** that diverged are named, and left out. Grids are averaged over the seeds that trained: those with an
  accuracy of at least 0.8 with their own solver (0.35 on CIFAR-10). [With all
  seeds](#with-and-without-the-seeds-that-did-not-train) some claims read otherwise. If the claim is that training
  itself does poorly, all seeds count, diverged ones as guessing. A test solve that fails classifies nothing.
"""
