"""Data-parallel training whose step is adapted: every rank sees batches of its own, and all train with the same step.

torchrun --nproc-per-node 4 --max-restarts 3 examples/ddp_adaptation.py --out runs/ddp

If a rank dies, torchrun starts all of them again, and they go on from the last checkpoint.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import windermere as wm
from windermere.adaptation import ControllerState
from windermere.paper.data import load
from windermere.records import read_tensors, write_tensors

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--iterations", type=int, default=800)
parser.add_argument("--every", type=int, default=20)
given = parser.parse_args()

dist.init_process_group("gloo")  # on GPUs "nccl", after torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
rank = dist.get_rank()
checkpoint = given.out / "checkpoint.safetensors"
given.out.mkdir(parents=True, exist_ok=True)

torch.manual_seed(0)  # the same weights on every rank
data = load("sphere2").train
field = wm.Autonomous(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2)))
controller = wm.SteadySteps(train="euler", check="midpoint", every=given.every, target=0.05)
state = controller.start(wm.initial_step(field, data.inputs, order=1))
block = wm.ODEBlock(field, controller.solver(state))
model = nn.Sequential(block, nn.Linear(2, 2))
parallel = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
MOMENTS, done = ("step", "exp_avg", "exp_avg_sq"), 0  # what Adam keeps of each parameter

if checkpoint.exists():
    saved = read_tensors(checkpoint)
    model.load_state_dict({name: saved.tensors[f"model {name}"] for name in model.state_dict()})
    moments = [{name: saved.tensors[f"{name} {k}"] for name in MOMENTS} for k in range(len([*model.parameters()]))]
    optimizer.load_state_dict({**optimizer.state_dict(), "state": dict(enumerate(moments))})
    state, done = ControllerState.from_dict(saved.meta["controller"]), saved.meta["iteration"]
    block.solver = controller.solver(state)


def save():
    """As safetensors, in one step, so that a kill leaves the checkpoint before it or this one."""
    moments = optimizer.state_dict()["state"]
    kept = {f"{name} {k}": own[name] for k, own in moments.items() for name in MOMENTS}
    kept |= {f"model {name}": tensor for name, tensor in model.state_dict().items()}
    write_tensors(checkpoint, kept, {"controller": state.to_dict(), "iteration": iteration})


for iteration in range(done + 1, given.iterations + 1):
    draws = torch.Generator().manual_seed(1000 * iteration + rank)  # the same batch, however often it was restarted
    chosen = torch.randint(len(data.labels), (128,), generator=draws)
    x, y = data.inputs[chosen], data.labels[chosen]
    logits = parallel(x)
    optimizer.zero_grad()
    nn.functional.cross_entropy(logits, y).backward()

    if iteration % controller.every == 0:

        def score(solver):
            with torch.no_grad(), wm.using(model, solver):
                checked = model(x)  # noqa: B023
            accuracy = (checked.argmax(1) == y).float().mean()  # noqa: B023
            return wm.Score(value=accuracy, distance=wm.moved_mass(logits, checked))  # noqa: B023

        accuracy = (logits.argmax(1) == y).float().mean()
        state = wm.shared_review(controller, state, wm.Score(value=accuracy), score)
        block.solver = controller.solver(state)
        print(f"{iteration:5d}  rank {rank}  {block.solver}  {state.decision.reason}\n", end="", flush=True)
    optimizer.step()
    if rank == 0 and iteration % controller.every == 0:
        save()

# At a process's very end, after all is saved, gloo of PyTorch 2.13 may abort it: see docs/faq.md.
dist.destroy_process_group()
