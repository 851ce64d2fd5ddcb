"""Writes articles.csv and citations.csv beside itself: invented articles in time. Same seed, same files.

Topics have words of their own, some of which come up late; their shares change; articles cite
mostly their own topic and recent work. The newest half year has no topics yet.
"""

import csv
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
FIRST, LAST, UNKNOWN = (
    np.datetime64("2016-01-01"),
    np.datetime64("2021-12-31"),
    np.datetime64("2021-07-01"),
)
COUNT = 1500
# Per topic: words of the early years, words that take over later, venues, share at the beginning
# and at the end.
TOPICS = {
    "databases": (
        "relational query join index transaction SQL storage schema warehouse tuple",
        "columnar cloud lakehouse streaming serverless vectorized versioned federated",
        "DataConf Systems",
        (0.34, 0.16),
    ),
    "vision": (
        "image segmentation detection texture camera object contour stereo",
        "diffusion transformer video pixel contrastive scene depth",
        "VisionConf LearningConf",
        (0.28, 0.28),
    ),
    "language": (
        "parsing syntax corpus translation grammar dialogue sentence word",
        "transformer pretrained prompt multilingual token summarization contrastive",
        "TextConf LearningConf",
        (0.14, 0.40),
    ),
    "security": (
        "password malware firewall intrusion encryption attack protocol privacy",
        "federated ransomware fuzzing enclave phishing token blockchain",
        "SafeConf Systems",
        (0.24, 0.16),
    ),
}
PLAIN = "data model learning efficient robust large fast adaptive analysis systems online structure local"
SHAPES = (
    "{0} {1} for {2} {3}",
    "On {0} {1} and {2}",
    "A {3} approach to {0} {1} with {2}",
    "Towards {3} {0} {1}",
    "{0} meets {1}: {2} {3} revisited",
)


def main(seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    names = list(TOPICS)
    days = np.sort(rng.integers(0, (LAST - FIRST).astype(int) + 1, COUNT))
    late = days / days.max()  # 0 at the beginning, 1 at the end
    begin, end = (np.array([TOPICS[name][3][k] for name in names]) for k in (0, 1))
    topic = np.array([rng.choice(len(names), p=begin + t * (end - begin)) for t in late])
    rows, links = [], []
    for i in range(COUNT):
        own, date = names[topic[i]], FIRST + days[i]
        rows.append(
            {
                "id": f"a{i:04d}",
                "published": str(date),
                "title": title(rng, own, late[i]),
                "venue": venue(rng, own),
                "pages": "" if rng.random() < 0.12 else pages(rng, own),
                "topic": "" if date >= UNKNOWN or rng.random() < 0.04 else own,
            }
        )
        for j in cited(rng, i, topic, days):
            links.append({"citing": f"a{i:04d}", "cited": f"a{j:04d}"})
    write("articles.csv", rows)
    write("citations.csv", links)


def title(rng: np.random.Generator, own: str, late: float) -> str:
    words = []
    for _ in range(3):
        # More than every second word comes from any topic, so that a title alone is not enough.
        source = own if rng.random() > 0.55 else str(rng.choice(list(TOPICS)))
        early, new, _, _ = TOPICS[source]
        words.append(str(rng.choice((new if rng.random() < late else early).split())))
    text = str(rng.choice(SHAPES)).format(*words, rng.choice(PLAIN.split()))
    return text[0].upper() + text[1:]


def venue(rng: np.random.Generator, own: str) -> str:
    if rng.random() < 0.5:
        return str(rng.choice(["Letters", "Systems", "LearningConf", "Workshops"]))
    return str(rng.choice(TOPICS[own][2].split()))


def pages(rng: np.random.Generator, own: str) -> int:
    return int(np.clip(rng.normal(11 if own == "security" else 9, 2.5), 4, 20))


def cited(rng: np.random.Generator, i: int, topic: np.ndarray, days: np.ndarray) -> list[int]:
    """Older articles: new ones more often than old ones, those of the own topic five times as often."""
    if i == 0:
        return []
    chance = np.exp((days[:i] - days[i]) / 500) * np.where(topic[:i] == topic[i], 5.0, 1.0)
    return sorted(
        rng.choice(i, min(rng.poisson(3.0), i), replace=False, p=chance / chance.sum()).tolist()
    )


def write(name: str, rows: list[dict]) -> None:
    with (HERE / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
