"""Two perceptrons of atoll_bench beside PyTorch: eager and torch.compile, AdamW, clip 1, StepLR, batch 64, CPU.

    python3 bench/peers/mlp_torch.py ATOLL_BENCH [RESULTS_JSON]

mlp is 256-512-256, digits is 64-128-128-10; each in fp32, and in bf16 under torch.autocast. The three take turns: after a
pause of 50 ms (OpenMP's threads spin on for some milliseconds after a turn, on the cores of whoever is next) 200 steps,
of which the second hundred is timed; 11 rounds, medians, in one run on one machine. No more steps than these on its one
batch: from 3000 on Adam's moments pass through the subnormals, where every step is slower. Also times the five matrix
products of the fp32 mlp step alone, as PyTorch calls them: no step that uses such products can be faster than they are.
Adds a "peers" row to RESULTS_JSON when it is given."""
import json
import statistics
import subprocess
import sys
import time

try:
    import torch
except ImportError:
    print("torch is not installed: nothing to compare with")
    sys.exit(0)

ROUNDS, STEPS, PAUSE = 11, 100, 0.05
MODELS = {
    "mlp": ((256, 512, 256), (torch.nn.GELU,)),
    "digits": ((64, 128, 128, 10), (torch.nn.GELU, torch.nn.ReLU)),
}


def make_step(model_name, policy, is_compiled):
    torch.manual_seed(1)
    sizes, activations = MODELS[model_name]
    layers = []
    for i, (n_in, n_out) in enumerate(zip(sizes, sizes[1:])):
        layers.append(torch.nn.Linear(n_in, n_out))
        layers += [activations[i]()] if i < len(activations) else []
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.5)
    loss_of = torch.nn.functional.cross_entropy

    def forward(x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=policy == "bf16"):
            return loss_of(model(x), y)

    run = torch.compile(forward) if is_compiled else forward
    x, y = torch.randn(64, sizes[0]), torch.randint(0, sizes[-1], (64,))

    def step():
        optimizer.zero_grad()
        run(x, y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()

    return step


def make_products():
    x, a, w1, w2 = torch.randn(64, 256), torch.randn(64, 512), torch.randn(512, 256), torch.randn(256, 512)
    b1, b2, dz, dh = torch.randn(512), torch.randn(256), torch.randn(64, 256), torch.randn(64, 512)

    @torch.no_grad()
    def products():
        torch.addmm(b1, x, w1.t())
        torch.addmm(b2, a, w2.t())
        dz @ w2
        dz.t() @ a
        dh.t() @ x

    return products


def timed(step):
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - start) / STEPS * 1e6


def turn_of(run):
    time.sleep(PAUSE)
    run()  # threads wake up, caches fill
    return run()


def row_of(bench, model, policy):
    atoll = subprocess.Popen([bench, "--steps", model, policy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def atoll_steps():
        atoll.stdin.write("\n")
        atoll.stdin.flush()
        return float(atoll.stdout.readline())

    runs = {"atoll_fused": atoll_steps}
    for name, is_compiled in (("torch_eager", False), ("torch_compile", True)):
        step = make_step(model, policy, is_compiled)
        try:
            step()
            runs[name] = lambda step=step: timed(step)
        except Exception as problem:  # no C++ compiler, for one
            print(f"{name}: not measured: {str(problem).splitlines()[0]}")
    if (model, policy) == ("mlp", "fp32"):
        products = make_products()
        runs["torch_products"] = lambda: timed(products)
    times = {name: [] for name in runs}
    for round_number in range(ROUNDS + 1):
        for name, run in runs.items():
            took = turn_of(run)
            if round_number > 0:  # the first warms up
                times[name].append(took)
    atoll.stdin.close()
    atoll.wait()
    row = {}
    for name in runs:
        row[name + "_us"] = round(statistics.median(times[name]), 1)
        row[name + "_spread_us"] = [round(min(times[name]), 1), round(max(times[name]), 1)]
    for name in ("torch_eager", "torch_compile"):
        if name in runs:
            row[name + "_over_atoll"] = round(row[name + "_us"] / row["atoll_fused_us"], 2)
    if "torch_products" in runs:
        row["torch_eager_over_its_products"] = round(row["torch_eager_us"] / row["torch_products_us"], 2)
    return row


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    peers = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    for model in MODELS:
        for policy in ("fp32", "bf16"):
            peers[f"{model}_{policy}"] = row_of(sys.argv[1], model, policy)
            print(f"{model}_{policy}: {json.dumps(peers[f'{model}_{policy}'])}", flush=True)
    if len(sys.argv) > 2:
        results = json.load(open(sys.argv[2]))
        results["peers"] = peers
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in results.items())
        open(sys.argv[2], "w").write("{\n" + lines + "\n}\n")


main()
