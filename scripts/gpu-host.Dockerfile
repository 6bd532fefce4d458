# docker build -f scripts/gpu-host.Dockerfile --build-arg ENGINE=vllm -t prof .
# docker run --gpus all --cap-add SYS_ADMIN -v "$PWD/runs:/runs" prof run top-kernels --out /runs/first
ARG CUDA=13.0.1
FROM nvidia/cuda:${CUDA}-devel-ubuntu24.04
ARG ENGINE=torch
COPY . /opt/prof
RUN /opt/prof/scripts/setup-gpu-host --venv /opt/venv --engine "$ENGINE" --no-permission
ENTRYPOINT ["/opt/venv/bin/prof"]
