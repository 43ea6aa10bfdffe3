import numpy as np
import scipy.sparse as sparse
from scipy import ndimage, optimize, signal, spatial
from scipy.sparse.linalg import spsolve

random = np.random.default_rng(2)
points = random.random((200_000, 3))
tree = spatial.cKDTree(points)
print(round(float(tree.query(points[:20_000], k=4)[0].sum()), 6))
size = 90
side = sparse.diags([-1, 2, -1], [-1, 0, 1], shape=(size, size))
grid = sparse.kron(side, sparse.eye(size)) + sparse.kron(sparse.eye(size), side)
print(round(float(spsolve(grid.tocsc(), np.ones(size * size)).sum()), 3))
image = random.random((2000, 2000))
print(round(float(ndimage.gaussian_filter(image, 3).std()), 8))
print(round(float(signal.fftconvolve(image, image[:64, :64]).sum()), 1))
print(np.round(optimize.minimize(lambda x: ((x - 3) ** 2).sum(), np.zeros(5)).x, 4))
