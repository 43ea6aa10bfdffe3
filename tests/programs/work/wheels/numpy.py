import numpy as np

values = np.random.default_rng(1).random((900, 900))
large = np.arange(8_000_000, dtype=np.float64)
print(round(float((values @ values).sum()), 3), float(np.sort(large[::-1])[1234567]))
print(float(large.reshape(2000, 4000).T.sum()), round(float(np.linalg.svd(values[:300, :300])[1].sum()), 6))
print(round(float(abs(np.fft.rfft(large)).sum() / 1e9), 3))
