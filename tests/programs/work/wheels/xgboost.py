import numpy as np
import xgboost

random = np.random.default_rng(7)
points = random.random((100_000, 30), np.float32)
target = points[:, 0] * 3 + np.sin(9 * points[:, 1]) + random.random(100_000, np.float32) / 10
data = xgboost.DMatrix(points, target, nthread=2)
model = xgboost.train({"tree_method": "hist", "nthread": 2, "seed": 0}, data, 12)
found = model.predict(data)
print(round(float(((found - target) ** 2).mean()), 6), np.round(found[::10_007], 4))
