# To be run on a machine with a GPU, in the root of the tree; results in $OUT. base.tgz: csrc, loader and what builds
# them of the commit before.
set -x
export OUT=${OUT:-/tmp}
here=$PWD
build() { # copies the tree to $1, with the change $2, builds it there
  mkdir -p /tmp/$1 && cp -r . /tmp/$1/ && cd /tmp/$1 && eval "$2"
  pip install --no-build-isolation --no-deps --target /tmp/$1/site . 2>&1 | tail -1
  cp /tmp/$1/site/loader/_core*.so loader/; cd "$here"
}
build new true &
build sixteen "sed -i 's/kSearchingBlocks = 18/kSearchingBlocks = 16/' csrc/walks/cuda/shape.h" &
[ -f base.tgz ] && build base "rm -rf csrc loader && tar xzf base.tgz" &
wait
cd /tmp/new
PYTHONPATH=. timeout 150 python -m pytest -q -n 0 -m gpu tests/loader/samplers/gpu/test_walks.py 2>&1 | tail -15
for tree in base new sixteen base new sixteen; do
  echo "== $tree"
  cd /tmp/$tree && PYTHONPATH=. timeout 60 python benchmarks/walks_gpu.py --no-torch --only node2vec --rounds 10 --out $OUT/walks_gpu_$tree.json
done
cd /tmp/new && PYTHONPATH=. timeout 290 python benchmarks/walks_cliff.py --device cuda --rounds 2 --out $OUT/walks_cliff_gpu.json
