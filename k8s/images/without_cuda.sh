#!/bin/sh
# Makes torch of PyPI importable without CUDA's libraries (2.7 GB), which nothing calls where there is no GPU. Run while an image is built.
#
#   without_cuda.sh PYTHON        the interpreter that torch is installed for
#
# torch's own libraries name CUDA's as needed, so the linker wants to find each of them, and every function that is taken from it. Those
# that are not installed get stand-ins: the same name and functions, each of which ends the process. The CUDA runtime has to be
# installed, as torch calls it to learn that there is no GPU. A build of torch for processors only needs no stand-in, and gets none.
set -eu
python=$1
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
work=$(mktemp -d)

# For compilers of one's own, and what is loaded on a GPU only.
rm -rf "$site/torch/include" "$site/torch/lib/libtorch_cuda_linalg.so" "$site/torch/lib/libcaffe2_nvrtc.so"

for file in "$site"/torch/lib/*.so; do
    readelf --dynamic --wide "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >> "$work/libraries"
    nm --dynamic --undefined-only "$file" | sed -nE 's/^ +U ((cu|nccl|nv)[A-Za-z0-9_]*)(@.*)?$/\1/p' >> "$work/functions"
done
echo '#include <stdlib.h>' > "$work/functions.c"
sort -u "$work/functions" | sed 's/.*/void &(void) { abort(); }/' >> "$work/functions.c"
for name in $(sort -u "$work/libraries" | grep -E '^lib(cu|nccl|nv)'); do
    [ -n "$(find "$site" -name "$name")" ] ||
        gcc -shared -fPIC -w -fno-builtin -s -Wl,-soname,"$name" -o "$site/torch/lib/$name" "$work/functions.c"
done
rm -r "$work"

# Rather no image than one whose scheduler cannot learn.
"$python" -c 'import torch; torch.nn.Linear(2, 2)(torch.ones(2, 2)).sum().backward(); assert not torch.cuda.is_available()'
