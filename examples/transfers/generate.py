"""Writes four tables beside itself: invented accounts, merchants, and money that moves. Same seed, same files.

Fraud is rare. Fraudulent accounts pass money on among each other within days and pay at gift card
and crypto merchants. What they look like on paper changes: they come from other countries each
year. The newest quarter is not yet looked into.
"""

import csv
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
FIRST, LAST, UNKNOWN = (
    np.datetime64("2020-01-01"),
    np.datetime64("2022-01-01"),
    np.datetime64("2021-10-01"),
)
ACCOUNTS, MERCHANTS, RING = 2000, 60, 8
COUNTRIES = ["DE", "FR", "PL", "NL", "ES"]
MERCHANT_KINDS = [
    "grocery",
    "travel",
    "clothing",
    "electronics",
    "restaurant",
    "gift cards",
    "crypto",
]


def main(seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    opened = np.sort(rng.integers(0, (LAST - FIRST).astype(int), ACCOUNTS))
    fraud = rng.random(ACCOUNTS) < 0.07
    late = opened / opened.max()
    kinds = rng.choice(MERCHANT_KINDS, MERCHANTS, p=[0.3, 0.12, 0.15, 0.15, 0.16, 0.06, 0.06])
    merchants = [
        {"id": f"m{k:02d}", "kind": kind, "country": rng.choice(COUNTRIES)}
        for k, kind in enumerate(kinds)
    ]
    accounts = [account(rng, i, opened[i], fraud[i], late[i]) for i in range(ACCOUNTS)]
    write("accounts.csv", accounts)
    write("merchants.csv", merchants)
    write("transfers.csv", sorted(transfers(rng, opened, fraud), key=lambda row: row["time"]))
    write("payments.csv", sorted(payments(rng, opened, fraud, kinds), key=lambda row: row["time"]))


def account(rng: np.random.Generator, i: int, day: int, fraud: bool, late: float) -> dict:
    """Honest ones are spread evenly; fraud moves from the first country to the last, and income is made up."""
    shares = (
        np.array([0.36 - 0.32 * late, 0.2, 0.2, 0.2, 0.04 + 0.32 * late])
        if fraud
        else np.full(5, 0.2)
    )
    income = rng.lognormal(8.0 if fraud else 7.8, 0.25 if fraud else 0.45)
    known = FIRST + day < UNKNOWN
    return {
        "id": f"c{i:04d}",
        "opened": str(FIRST + day),
        "country": rng.choice(COUNTRIES, p=shares / shares.sum()),
        "kind": rng.choice(
            ["private", "business", "student"], p=[0.6, 0.3, 0.1] if fraud else [0.7, 0.15, 0.15]
        ),
        "income": "" if rng.random() < (0.3 if fraud else 0.15) else round(float(income), -1),
        "is_fraud": ("yes" if fraud else "no") if known else "",
    }


def transfers(rng: np.random.Generator, opened: np.ndarray, fraud: np.ndarray) -> list[dict]:
    rows = []
    rings = np.array_split(np.flatnonzero(fraud), max(fraud.sum() // RING, 1))  # neighbours in time
    ring_of = {int(i): ring for ring in rings for i in ring}
    for i in range(ACCOUNTS):
        for _ in range(rng.poisson(2.5)):
            ring = fraud[i] and rng.random() < 0.6
            there = ring_of[i] if ring else np.arange(ACCOUNTS)
            # Money goes to accounts of about the same age; some of it, long after both were opened.
            near = np.exp(-np.abs(opened[there] - opened[i]) / 120.0) * (there != i)
            j = int(rng.choice(there, p=near / near.sum()))
            start = max(opened[i], opened[j])
            day = start + int(rng.exponential(10 if ring else 90))
            amount = rng.lognormal(6.0, 0.4) if ring else rng.lognormal(4.5, 1.0)
            add(
                rng,
                rows,
                day,
                {"sender": f"c{i:04d}", "receiver": f"c{j:04d}", "amount": round(float(amount), 2)},
            )
    return rows


def payments(
    rng: np.random.Generator, opened: np.ndarray, fraud: np.ndarray, kinds: np.ndarray
) -> list[dict]:
    rows = []
    shady = np.isin(kinds, MERCHANT_KINDS[-2:])
    for i in range(ACCOUNTS):
        liking = np.where(shady, 7.0 if fraud[i] else 0.5, 1.0)
        for _ in range(rng.poisson(3.0)):
            m, day = (
                int(rng.choice(MERCHANTS, p=liking / liking.sum())),
                opened[i] + int(rng.exponential(60)),
            )
            add(rng, rows, day, {"account": f"c{i:04d}", "merchant": f"m{m:02d}"})
    return rows


def add(rng: np.random.Generator, rows: list[dict], day: int, row: dict) -> None:
    """With a time of day; what would come after the last day has not happened yet."""
    if FIRST + day < LAST:
        rows.append(
            row
            | {
                "time": str(
                    (FIRST + day).astype("M8[m]") + np.timedelta64(int(rng.integers(1440)), "m")
                )
            }
        )


def write(name: str, rows: list[dict]) -> None:
    with (HERE / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
