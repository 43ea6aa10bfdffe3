import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

random = np.random.default_rng(4)
points = random.random((100_000, 40))
labels = (points[:, 0] + points[:, 1] ** 2 > 0.8).astype(int)
print(np.round(PCA(5, svd_solver="full").fit(points).explained_variance_, 6))
print(round(KMeans(8, n_init=1, random_state=0).fit(points[:30_000]).inertia_, 3))
forest = RandomForestClassifier(10, random_state=0, n_jobs=2).fit(points[:10_000], labels[:10_000])
print(forest.score(points, labels), LogisticRegression().fit(points, labels).score(points, labels))
