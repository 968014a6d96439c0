# To be run on a machine with a GPU, in the root of the tree; results in $OUT.
set -x
export PYTHONPATH=. OUT=${OUT:-/tmp}
PART=${1:-all}
pip install --no-build-isolation --no-deps . 2>&1 | tail -1
cp "$(python -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])')"/loader/_core*.so loader/
timeout 150 python -m pytest -q -n 0 -m gpu tests/loader/samplers/gpu/test_walks.py 2>&1 | tail -15
timeout 100 python benchmarks/walks_gpu.py --no-torch --only uniform node2vec --out $OUT/walks_gpu_18.json
sed -i 's/kSearchingBlocks = 18/kSearchingBlocks = 16/' csrc/walks/cuda/shape.h
timeout 290 python benchmarks/walks_cliff.py --device cuda --rounds 2 --out $OUT/walks_cliff_gpu.json
