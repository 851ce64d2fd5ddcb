"""The paper's definitions as naive loops: the oracle for every fast path.

Nothing here is fast or clever; each function follows the printed equation or algorithm it names, in
the reading that `docs/paper-to-code.md` gives.
"""

import numpy as np

# -- first moment: tables Ω[target time, source time]


def plain_table(times):
    return np.array([[1.0 for _ in times] for _ in times])


def mmp_table(times):
    """Definition 4.2: a node listens to its past and present."""
    return np.array([[1.0 if source <= target else 0.0 for source in times] for target in times])


def pmp_table(times):
    """Algorithms 1 and 2.

    A distance that both sides of t can offer counts once, any other twice.
    """
    last, first = max(times), min(times)
    table = np.empty((len(times), len(times)))
    for i, t in enumerate(times):
        for j, s in enumerate(times):
            table[i, j] = 2.0 if abs(s - t) > min(last - t, t - first) else 1.0
    return table


def pmp_definition_table(times):
    """Definition 4.1 by its two sets of times: T_single counts twice, T_double once."""
    last = max(times)
    table = np.zeros((len(times), len(times)))
    for i, t in enumerate(times):
        single = {s for s in times if s == t or s < 2 * t - last}
        double = {s for s in times if abs(s - t) <= abs(last - t) and s != t}
        for j, s in enumerate(times):
            table[i, j] = 2.0 * (s in single) + 1.0 * (s in double)
    return table


def genpmp_table(times, time):
    """D[t_max][Δ] / D[t][Δ] with D[s][Δ] the number of nodes at time distance Δ from s, node by
    node.
    """
    last = max(times)

    def num_at_distance(s, delta):
        return sum(1 for t in time if abs(int(t) - s) == delta)

    table = np.ones((len(times), len(times)))
    for i, t in enumerate(times):
        for j, s in enumerate(times):
            here = num_at_distance(t, abs(s - t))
            if here:
                table[i, j] = num_at_distance(last, abs(s - t)) / here
    return table


def genpmp_edge_table(times, time, edge_index):
    """The same ratio with the share of observed edges into time s at distance Δ, edge by edge."""
    last = max(times)

    def share(s, delta):
        into = [(int(u), int(v)) for u, v in edge_index.T if time[v] == s]
        return (
            sum(1 for u, v in into if abs(int(time[u]) - s) == delta) / len(into) if into else 0.0
        )

    table = np.ones((len(times), len(times)))
    for i, t in enumerate(times):
        for j, s in enumerate(times):
            here = share(t, abs(s - t))
            if here:
                table[i, j] = share(last, abs(s - t)) / here
    return table


def weighted_mean_message(x, time, edge_index, times, table, weight=None):
    """M_v = Σ Ω·a·x / Σ Ω·a over the edges into v; zeros where no weight is left."""
    place = {int(t): i for i, t in enumerate(times)}
    message = np.zeros(x.shape, dtype=np.float64)
    for v in range(len(x)):
        total = 0.0
        for e in range(edge_index.shape[1]):
            if edge_index[1, e] == v:
                u = edge_index[0, e]
                w = table[place[int(time[v])], place[int(time[u])]] * (
                    1.0 if weight is None else weight[e]
                )
                message[v] += w * x[u]
                total += w
        if total > 0:
            message[v] /= total
    return message


# -- alignment without labels


def center(message, time):
    overall = sum(message) / len(message)
    out = np.array(message, dtype=np.float64)
    for v in range(len(message)):
        same = [message[u] for u in range(len(message)) if time[u] == time[v]]
        out[v] = message[v] - sum(same) / len(same) + overall
    return out


def standardize(message, time):
    """Centred, and every column of a period brought to the pooled standard deviation within
    periods.
    """
    overall = sum(message) / len(message)
    squares, freedom = np.zeros(message.shape[1]), 0
    groups = {int(t): message[np.asarray(time) == t] for t in set(map(int, time))}
    for rows in groups.values():
        squares += ((rows - rows.mean(0)) ** 2).sum(0)
        freedom += len(rows) - 1
    out = np.array(message, dtype=np.float64)
    for v in range(len(message)):
        rows = groups[int(time[v])]
        for j in range(message.shape[1]):
            own = ((rows[:, j] - rows[:, j].mean()) ** 2).sum() / max(len(rows) - 1, 1)
            factor = np.sqrt(squares[j] / freedom / own) if own > 0 else 1.0
            out[v, j] = (message[v, j] - rows[:, j].mean()) * factor + overall[j]
    return out


# -- JJnorm


def jj_scales(message, label, time, target):
    """α_t = √max(0, (σ²_target − ν²_t) / σ²_t) for every period with labelled nodes.

    1 where undefined.
    """
    nodes = range(len(message))
    goal_rows = [message[v] for v in nodes if target[v]]
    middle = sum(goal_rows) / len(goal_rows)
    goal = sum(float(((row - middle) ** 2).sum()) for row in goal_rows) / max(len(goal_rows) - 1, 1)
    scales = {}
    for t in sorted({int(time[v]) for v in nodes if label[v] >= 0 and not target[v]}):
        members = [v for v in nodes if time[v] == t and label[v] >= 0 and not target[v]]
        mu_t = sum(message[v] for v in members) / len(members)
        within = between = 0.0
        for y in {int(label[v]) for v in members}:
            community = [v for v in members if label[v] == y]
            mu_yt = sum(message[v] for v in community) / len(community)
            between += len(community) * float(((mu_yt - mu_t) ** 2).sum())
            within += sum(float(((message[v] - mu_yt) ** 2).sum()) for v in community)
        scales[t] = 1.0
        if len(members) > 1 and len(goal_rows) > 1 and within > 0:
            nu, sigma = between / (len(members) - 1), within / (len(members) - 1)
            scales[t] = float(np.sqrt(max(0.0, (goal - nu) / sigma)))
    return scales


def jjnorm(message, label, time, target):
    """M_v ← μ_yt + α_t (M_v − μ_yt) for labelled nodes that are no targets."""
    scales = jj_scales(message, label, time, target)
    out = np.array(message, dtype=np.float64)
    for v in range(len(message)):
        if label[v] >= 0 and not target[v]:
            community = [
                message[u]
                for u in range(len(message))
                if label[u] == label[v] and time[u] == time[v] and not target[u]
            ]
            mean = sum(community) / len(community)
            out[v] = mean + scales[int(time[v])] * (message[v] - mean)
    return out


# -- PNY


def label_covariance(previous, label, target, y):
    """Σ_XX(y) over the labelled nodes of label y; zero below two of them."""
    rows = np.array([previous[v] for v in range(len(previous)) if label[v] == y and not target[v]])
    width = previous.shape[1]
    if len(rows) < 2:
        return np.zeros((width, width))
    total = np.zeros((width, width))
    for row in rows:
        total += np.outer(row - rows.mean(0), row - rows.mean(0))
    return total / (len(rows) - 1)


def mean_degree(label, time, target, degree, times, num_labels):
    """|N_yt| as [Y, T]: the community's mean degree.

    Where the community is empty: the mean degree of the period's labelled nodes (of the targets,
    where the
    period has none) times the label's factor, the ratio of its total degree to what period means
    would give.
    """
    nodes = range(len(label))
    labelled = [v for v in nodes if label[v] >= 0 and not target[v]]
    targets = [v for v in nodes if target[v]]

    def mean(members):
        return sum(float(degree[v]) for v in members) / len(members)

    by_time = {int(t): [v for v in labelled if time[v] == t] for t in times}
    out = np.zeros((num_labels, len(times)))
    for y in range(num_labels):
        own = [v for v in labelled if label[v] == y]
        expected = sum(mean(by_time[int(time[v])]) for v in own)
        factor = sum(float(degree[v]) for v in own) / expected if expected > 0 else 1.0
        for i, t in enumerate(times):
            community = [v for v in own if time[v] == t]
            whole = by_time[int(t)] or targets
            out[y, i] = mean(community) if community else mean(whole) * factor
    return out


def message_covariance(relative, table, covariance, degree, y, t):
    """Σ_MM(y, t) = Σ_ỹ Σ_t̃ Ω²P Σ_XX(ỹ) / ((Σ_ỹ Σ_t̃ ΩP)² |N_yt|); None where nothing is known."""
    num_labels, num_times = relative.shape[:2]
    top, bottom = np.zeros(covariance[0].shape), 0.0
    for other in range(num_labels):
        for s in range(num_times):
            top += table[t, s] ** 2 * relative[y, t, other, s] * covariance[other]
            bottom += table[t, s] * relative[y, t, other, s]
    scale = bottom**2 * degree[y, t]
    return top / scale if scale > 0 and np.trace(top) > 0 else None


def root(matrix):
    """The symmetric square root."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors @ np.diag(np.sqrt(values)) @ vectors.T


def transport_map(sigma, goal):
    """Σ_t^-½ (Σ_t^½ Σ_max Σ_t^½)^½ Σ_t^-½."""
    half = root(sigma)
    inverse = np.linalg.inv(half)
    return inverse @ root(half @ goal @ half) @ inverse


def eigen_map(sigma, goal):
    """U_max Λ_max^½ Λ_t^-½ U_tᵀ.

    Eigenvalues ascending, the largest entry of every vector positive.
    """

    def ordered(matrix):
        values, vectors = np.linalg.eigh(matrix)
        for j in range(len(values)):
            if vectors[np.argmax(np.abs(vectors[:, j])), j] < 0:
                vectors[:, j] = -vectors[:, j]
        return values, vectors

    (small, turned), (large, goal_vectors) = ordered(sigma), ordered(goal)
    return goal_vectors @ np.diag(np.sqrt(large)) @ np.diag(1 / np.sqrt(small)) @ turned.T


def pny(message, previous, label, time, target, relative, times, degree, table, make_map):
    """M_v ← A_yt (M_v − μ_y) + μ_y for labelled nodes that are no targets.

    Unknown communities stay.
    """
    num_labels = len(relative)
    covariance = [label_covariance(previous, label, target, y) for y in range(num_labels)]
    neighbours = mean_degree(
        label, time=time, target=target, degree=degree, times=times, num_labels=num_labels
    )
    place = {int(t): i for i, t in enumerate(times)}
    out = np.array(message, dtype=np.float64)
    for v in range(len(message)):
        if label[v] < 0 or target[v]:
            continue
        y, t = int(label[v]), place[int(time[v])]
        here = message_covariance(
            relative, table=table, covariance=covariance, degree=neighbours, y=y, t=t
        )
        goal = message_covariance(
            relative, table=table, covariance=covariance, degree=neighbours, y=y, t=len(times) - 1
        )
        if here is None or goal is None:
            continue
        own = [message[u] for u in range(len(message)) if label[u] == y and not target[u]]
        mean = sum(own) / len(own)
        out[v] = make_map(here, goal) @ (message[v] - mean) + mean
    return out
