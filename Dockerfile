# Image for training on CPUs:          docker build --tag bert .
# on NVIDIA GPUs (driver on the host): docker build --tag bert-cuda --build-arg REQUIREMENTS=requirements-cuda.txt .
FROM python:3.12-slim

ARG REQUIREMENTS=requirements.txt
WORKDIR /bert
COPY requirements*.txt constraints.txt ./
RUN pip install --no-cache-dir --requirement "$REQUIREMENTS"
COPY . .

# Runs are written below the working folder, so that the image can run as any user on a mounted folder:
#   docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/work" --workdir /work bert \
#       python /bert/run_pretraining.py --config /bert/configs/pretraining/pretrain_tiny_128_speedrun.json --generated-dataset true
ENV PYTHONPATH=/bert PYTHONDONTWRITEBYTECODE=1
CMD ["python", "run_pretraining.py", "--help"]
