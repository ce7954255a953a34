"""A model on a system of chips: a training step, and what a user waits for."""

import rdusim as rs


def main() -> None:
    """Trains and serves a small model on eight GPUs."""
    step = rs.pod("dgx-a100", rs.Workload.model("gpt2", phase="training", batch=16, seq=512), parallel={"tp": 2, "dp": 4})
    schedule: rs.Picture = step.timeline()
    print(f"{step.step_s * 1e3:.1f} ms a step, {schedule.title}")
    served = rs.serve(
        "dgx-a100", "llama3-8b", parallel={"tp": 1}, users=8, arrivals=2.0, requests=20, prompt_tokens=64, output_tokens=8
    )
    rate: float = served.tokens_per_s
    print(f"{rate > 0}")
    try:
        rs.Chip("sn99")
    except rs.InputError as error:
        print(error.message)


if __name__ == "__main__":
    main()
