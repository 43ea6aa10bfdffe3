import hashlib
import io

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

random = np.random.default_rng(5)
figure, axes = plt.subplots(2, 2, figsize=(16, 12), dpi=150)
axes[0, 0].scatter(*random.random((2, 50_000)), s=2)
axes[0, 1].imshow(random.random((1500, 1500)))
axes[1, 0].plot(random.random(200_000).cumsum())
axes[1, 1].hist(random.normal(size=1_000_000), bins=200)
stream = io.BytesIO()
figure.savefig(stream, format="rgba")
print(len(stream.getvalue()), hashlib.md5(stream.getvalue()).hexdigest())
