"""The 256-512-256 perceptron of atoll_bench in PyTorch: eager and torch.compile, AdamW, clip 1, StepLR, batch 64, CPU.

    python3 bench/peers/mlp_torch.py [ATOLL_BENCH_JSON]

Prints microseconds a step and, given the JSON of scripts/bench from the same machine, the ratios to the fused step."""
import json
import statistics
import sys
import time

try:
    import torch
except ImportError:
    print("torch is not installed: nothing to compare with")
    sys.exit(0)


def build():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.5)
    return model, optimizer, schedule


def measure(compiled):
    model, optimizer, schedule = build()
    loss_of = torch.nn.functional.cross_entropy
    forward = torch.compile(lambda x, y: loss_of(model(x), y)) if compiled else lambda x, y: loss_of(model(x), y)
    x, y = torch.randn(64, 256), torch.randint(0, 256, (64,))

    def step():
        optimizer.zero_grad()
        forward(x, y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()

    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    for _ in range(50):
        step()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(100):
            step()
        times.append((time.perf_counter() - start) / 100 * 1e6)
    return statistics.median(times), first


def main():
    eager, _ = measure(False)
    print(f"torch {torch.__version__} eager: {eager:.1f} us a step, {torch.get_num_threads()} threads")
    try:
        compiled, first = measure(True)
        print(f"torch.compile: {compiled:.1f} us a step, first step {first:.2f} s")
    except Exception as problem:  # no C++ compiler, for one
        compiled = None
        print(f"torch.compile: not measured: {str(problem).splitlines()[0]}")
    if len(sys.argv) > 1:
        ours = json.load(open(sys.argv[1]))["mlp_fp32"]["fused_us"]
        print(f"atoll fused: {ours:.1f} us; torch eager is {eager / ours:.2f} times that"
              + (f", torch.compile {compiled / ours:.2f} times" if compiled else ""))


main()
