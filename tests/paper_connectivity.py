"""Algorithm 3 and Theorem 4.5 as naive loops: the oracle for `connectivity` and `bounds`.

Nothing here is fast; every function walks over nodes, labels and times one by one, as the paper's
text does.
"""

import numpy as np


def counted(edge_index, label, time, num_labels, cutoff):
    """P̂[y,t,ỹ,t̃].

    Σ_u |N_u(ỹ,t̃)| / Σ_u |N_u| over the nodes u with label y and time t, known times only.
    """
    times = sorted(set(time))
    out = np.zeros((num_labels, len(times), num_labels, len(times)))
    for y in range(num_labels):
        for i, t in enumerate(times):
            if t >= cutoff:
                continue
            nodes = [u for u in range(len(time)) if label[u] == y and time[u] == t]
            neighbours = [s for u in nodes for s, v in edge_index.T if v == u]
            for s in neighbours:
                if time[s] < cutoff and label[s] >= 0:
                    out[y, i, label[s], times.index(time[s])] += 1 / len(neighbours)
    return out


def handed_out(edge_index, label, time, num_labels, cutoff):
    """P̂ with the unlabelled neighbours of every (y, t, t̃) assigned to labels as the labelled ones
    there are.
    """
    times = sorted(set(time))
    out = counted(edge_index, label, time, num_labels, cutoff)
    for y in range(num_labels):
        for i, t in enumerate(times):
            for j, s in enumerate(times):
                if t >= cutoff or s >= cutoff:
                    continue
                nodes = [u for u in range(len(time)) if label[u] == y and time[u] == t]
                there = [w for u in nodes for w, v in edge_index.T if v == u and time[w] == s]
                known = [w for w in there if label[w] >= 0]
                if known:
                    out[y, i, :, j] *= len(there) / len(known)
    return out


def g(share, times, cutoff, form):
    """ĝ[y,ỹ,Δ] and the Δ without a denominator [y,Δ]."""
    times = list(times)
    deltas = sorted({abs(s - t) for s in times for t in times})
    past = [t for t in times if t < cutoff]
    num_labels = len(share)
    f = np.zeros((num_labels, len(past)))
    for y in range(num_labels):
        for i in range(len(past)):
            f[y, i] = sum(share[y, i, z, i] for z in range(num_labels))
    if form == "unbiased":
        for y in range(num_labels):
            if f[y].sum() == 0:
                f[y] = [1.0 if share[y, i].sum() > 0 else 0.0 for i in range(len(past))]
    out = np.zeros((num_labels, num_labels, len(deltas)))
    missing = np.zeros((num_labels, len(deltas)), dtype=bool)
    for y in range(num_labels):
        for d, delta in enumerate(deltas):
            above = [i for i, t in enumerate(past) if t + delta in past]
            below = [i for i, t in enumerate(past) if t - delta in past]
            if form == "unbiased":
                denominator = sum(f[y, i] for i in above) + sum(f[y, i] for i in below)
            else:
                denominator = (
                    sum(f[y, i] for i, t in enumerate(past) if t + delta <= past[-1]) + f[y].sum()
                )
            missing[y, d] = denominator == 0
            for z in range(num_labels):
                numerator = sum(share[y, i, z, times.index(past[i] + delta)] for i in above)
                numerator += sum(share[y, i, z, times.index(past[i] - delta)] for i in below)
                out[y, z, d] = numerator / denominator if denominator else 0.0
    return out, missing


def extended(share, times, cutoff, form):
    """P̂ for all times.

    Literal lines of Algorithm 3 ("printed"), or rows that sum to one ("unbiased").
    """
    times = list(times)
    size, num_labels = len(times), len(share)
    deltas = sorted({abs(s - t) for s in times for t in times})
    values, missing = g(share, times, cutoff, form)
    if form == "unbiased":
        for y in range(num_labels):
            known = [d for d in range(len(deltas)) if not missing[y, d]]
            if known:
                for z in range(num_labels):
                    values[y, z] = np.interp(
                        deltas, [deltas[d] for d in known], [values[y, z, d] for d in known]
                    )
    out = np.zeros_like(share)
    for y in range(num_labels):
        for i in range(size):
            drawn = np.array(
                [
                    [values[y, z, deltas.index(abs(s - times[i]))] for s in times]
                    for z in range(num_labels)
                ]
            )
            if drawn.sum() > 0:
                drawn /= drawn.sum()
            past = [j for j in range(size) if times[j] < cutoff]
            out[y, i] = drawn
            if times[i] < cutoff and form == "printed":
                out[y, i][:, past] = share[y, i][:, past]
            elif times[i] < cutoff and share[y, i].sum() > 0:
                out[y, i][:, past] = share[y, i][:, past] / share[y, i].sum() * drawn[:, past].sum()
    return out


def contraction(extended, table):
    """Theorem 4.5.

    The largest mass moved inside labels, and the largest moved between them, over y, t, t'.
    """
    num_labels, size = extended.shape[:2]
    factor = leak = 0.0
    for y in range(num_labels):
        for t in range(size):
            for s in range(size):
                one, other = extended[y, t] * table[t], extended[y, s] * table[s]
                if one.sum() == 0 or other.sum() == 0:
                    continue
                difference = one / one.sum() - other / other.sum()
                inside = between = 0.0
                for z in range(num_labels):
                    up = sum(x for x in difference[z] if x > 0)
                    down = -sum(x for x in difference[z] if x < 0)
                    inside += min(up, down)
                    between += max(up - down, 0.0)
                factor, leak = max(factor, inside), max(leak, between)
    return factor, leak
