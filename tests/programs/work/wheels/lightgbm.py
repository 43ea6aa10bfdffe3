import lightgbm
import numpy as np

random = np.random.default_rng(6)
points = random.random((100_000, 30))
target = points[:, 0] * 3 + np.sin(9 * points[:, 1]) + random.random(100_000) / 10
options = {"objective": "regression", "num_threads": 2, "deterministic": True, "force_row_wise": True, "verbose": -1}
model = lightgbm.train(options, lightgbm.Dataset(points, target), 12)
found = model.predict(points, num_threads=2)
print(round(float(((found - target) ** 2).mean()), 8), np.round(found[::10_007], 6))
