"""What powerlaw, scipy and numpy say of the samples that peers.rs drew: JSON in, JSON out."""

import json
import sys
import warnings

import numpy as np
import powerlaw
import scipy.special as special
import scipy.stats as st


def descriptors(sample):
    return {
        "minimum": sample.min(),
        "maximum": sample.max(),
        "mean": sample.mean(),
        "standard_deviation": sample.std(ddof=1),
    }


def distribution(sample, asked):
    ecdf = st.ecdf(sample).cdf
    return {
        "quantiles": np.quantile(sample, asked["fractions"], method="inverted_cdf").tolist(),
        "by_weight": np.quantile(sample, asked["fractions"], weights=sample, method="inverted_cdf").tolist(),
        "at_or_below": ecdf.evaluate(np.array(asked["values"])).tolist(),
    }


def ratio_without_underflow(sample, x_min, mu, sigma):
    """Pareto over lognormal, at the package's parameters: its own normaliser has lost its digits beyond 37 standard deviations."""
    logs = np.log(sample[sample >= x_min] / x_min)
    alpha = len(logs) / logs.sum()
    start = (np.log(x_min) - mu) / sigma
    lognormal = st.norm.logpdf(start + logs / sigma) - np.log(sigma) - special.log_ndtr(-start)
    return float(np.sum(np.log(alpha) - alpha * logs - lognormal))


def tail(sample):
    # The package's own limit of 3 for the density's exponent would leave out starts that the method allows.
    fit = powerlaw.Fit(sample, discrete=False, verbose=0, parameter_ranges={"alpha": [1.0, 1e6]})
    against = {}
    for other in ("lognormal", "exponential"):
        ratio, p_value = fit.distribution_compare("power_law", other, normalized_ratio=True)
        against[other] = [float(ratio), float(p_value)]
    return {
        "exact_ratio": ratio_without_underflow(sample, fit.xmin, fit.lognormal.mu, fit.lognormal.sigma),
        "alpha": float(fit.alpha) - 1.0,
        "x_min": float(fit.xmin),
        "distance": float(fit.D),
        "tail_values": int(fit.n_tail),
        "standard_error": float(fit.power_law.standard_err),
        "lognormal": [float(fit.lognormal.mu), float(fit.lognormal.sigma)],
        "exponential": float(fit.exponential.Lambda),
        "against": against,
    }


def hill(sample, ranks):
    logs = np.log(np.sort(sample)[::-1])
    return [float(1.0 / np.mean(logs[:k] - logs[k])) for k in ranks]


def trend(sample, ranks):
    """A trend of the scaled log-spacings, from its definition."""
    logs = np.log(np.sort(sample)[::-1])
    found = []
    for k in ranks:
        i = np.arange(1, k + 1)
        spacings = i * (logs[:k] - logs[1 : k + 1])
        scores = np.log(i).mean() - np.log(i)
        found.append(float(scores @ spacings / spacings.mean() / np.sqrt((scores @ scores) * k / (k + 1))))
    return found


def llcd(sample, values):
    above = np.array([(sample > value).mean() for value in values])
    line = st.linregress(np.log10(values), np.log10(above))
    return {
        "alpha": -line.slope,
        "intercept": line.intercept,
        "r_squared": line.rvalue**2,
        "standard_error": line.stderr,
    }


def qq(sample):
    (theoretical, observed), (_, _, normal) = st.probplot(sample, dist="norm")
    alpha = len(sample) / np.log(sample / sample.min()).sum()
    fitted = st.pareto.ppf(st.norm.cdf(theoretical), alpha, scale=sample.min())
    return {
        "normal": float(normal),
        "normal_theoretical": (sample.mean() + sample.std(ddof=1) * theoretical[[0, -1]]).tolist(),
        "pareto": float(np.corrcoef(fitted, observed)[0, 1]),
        "pareto_logarithmic": float(np.corrcoef(np.log(fitted), np.log(observed))[0, 1]),
    }


def dispersion(arrivals, interval_ns, scales):
    offsets = arrivals - arrivals.min()
    finest = offsets // interval_ns
    whole = int(offsets.max() // interval_ns)
    counts = np.bincount(finest[finest < whole].astype(int), minlength=whole)
    found = []
    for factor in scales:
        merged = counts[: len(counts) // factor * factor].reshape(-1, factor).sum(axis=1)
        index = merged.var(ddof=1) / merged.mean()
        p_value = st.chi2.sf((len(merged) - 1) * index, len(merged) - 1)
        found.append([float(merged.mean()), float(index), float(p_value)])
    return found


def functions():
    return {
        "normal_log_survival": [float(st.norm.logsf(z)) for z in (-8.0, -1.0, 0.5, 2.4, 2.6, 7.0, 35.0, 400.0)],
        "normal_quantile": [float(st.norm.ppf(p)) for p in (1e-200, 1e-9, 0.02, 0.07, 0.08, 0.4, 0.9, 1 - 1e-12)],
        "chi_square_survival": [
            float(st.chi2.sf(x, k)) for x, k in ((0.1, 1), (30.0, 12), (900.0, 1000), (12000.0, 11900), (1e6, 998000))
        ],
        "student_two_sided": [float(2 * st.t.sf(t, k)) for t, k in ((0.2, 3), (2.5, 8), (4.0, 500), (1.1, 100000))],
    }


def main():
    warnings.simplefilter("ignore")
    asked = json.load(open(sys.argv[1]))
    found = {"samples": {}, "functions": functions()}
    for name, one in asked["samples"].items():
        sample = np.fromfile(one["file"], dtype="<f8")
        found["samples"][name] = {
            "descriptors": descriptors(sample),
            "distribution": distribution(sample, one),
            "tail": tail(sample),
            "hill": hill(sample, one["ranks"]),
            "trend": trend(sample, one["ranks"]),
            "llcd": llcd(sample, one["llcd_values"]),
            "qq": qq(sample),
        }
    arrivals = np.fromfile(asked["arrivals"], dtype="<u8").astype(np.int64)
    found["dispersion"] = dispersion(arrivals, asked["interval_ns"], [1, 10, 100])
    pairs = np.fromfile(asked["pairs"], dtype="<f8").reshape(-1, 2)
    ranks = st.spearmanr(pairs[:, 0], pairs[:, 1])
    found["spearman"] = [float(ranks.statistic), float(ranks.pvalue)]
    json.dump(found, sys.stdout)


main()
