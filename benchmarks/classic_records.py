"""Our imitation of the classic script: one process, plain Python, HF's slow tokenizer, TensorFlow's writer.

The procedure of BERT's published data preparation (Devlin et al. 2019, sections 3.1 and A.2): all documents are
tokenised into lists in memory, then one pair, one mask and one protobuf message is made at a time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformers import BertTokenizer

from keras_extensions.backend import tf

Document = list[list[str]]

# The usual settings
MAX_SEQ_LENGTH, MAX_PREDICTIONS = 128, 20
MASKED_LM_PROB, SHORT_SEQ_PROB = 0.15, 0.1
DUPLICATE_FACTOR, SEED = 5, 42


class Instance(NamedTuple):
    tokens: list[str]
    segment_ids: list[int]
    is_random_next: bool
    positions: list[int]
    labels: list[str]


def read_documents(files: Sequence[Path], tokenizer: BertTokenizer) -> list[Document]:
    """Return the tokenised sentences of documents; a blank line ends a document."""
    documents: list[Document] = [[]]
    for path in files:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                line = line.strip()
                if not line:
                    documents.append([])
                    continue
                tokens = tokenizer.tokenize(line)
                if tokens:
                    documents[-1].append(tokens)
    return [document for document in documents if document]


def make_instances(documents: list[Document], words: Sequence[str], rng: random.Random) -> list[Instance]:
    rng.shuffle(documents)
    instances = [
        instance
        for _ in range(DUPLICATE_FACTOR)
        for number in range(len(documents))
        for instance in instances_of_document(documents, number, words, rng)
    ]
    rng.shuffle(instances)
    return instances


def instances_of_document(
    documents: list[Document], number: int, words: Sequence[str], rng: random.Random
) -> Iterator[Instance]:
    """Walk a document sentence by sentence and make pairs of the collected sentences."""
    document = documents[number]
    longest = MAX_SEQ_LENGTH - 3
    target = target_length(longest, rng)
    chunk: list[list[str]] = []
    length = at = 0
    while at < len(document):
        chunk.append(document[at])
        length += len(document[at])
        if at == len(document) - 1 or length >= target:
            first_end = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
            first = [token for sentence in chunk[:first_end] for token in sentence]
            second: list[str] = []
            is_random = len(chunk) == 1 or rng.random() < 0.5
            if is_random:
                other = number
                for _ in range(10):
                    other = rng.randint(0, len(documents) - 1)
                    if other != number:
                        break
                for sentence in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
                    second.extend(sentence)
                    if len(second) >= target - len(first):
                        break
                at -= len(chunk) - first_end  # unused sentences are used again
            else:
                for sentence in chunk[first_end:]:
                    second.extend(sentence)
            truncate(first, second, longest, rng)
            tokens = ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
            segment_ids = [0] * (len(first) + 2) + [1] * (len(second) + 1)
            masked, positions, labels = mask(tokens, words, rng)
            yield Instance(masked, segment_ids, is_random, positions, labels)
            chunk, length = [], 0
            target = target_length(longest, rng)
        at += 1


def target_length(longest: int, rng: random.Random) -> int:
    """Return the target length, which is mostly the longest."""
    return rng.randint(2, longest) if rng.random() < SHORT_SEQ_PROB else longest


def truncate(first: list[str], second: list[str], longest: int, rng: random.Random) -> None:
    while len(first) + len(second) > longest:
        longer = first if len(first) > len(second) else second
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


def mask(tokens: list[str], words: Sequence[str], rng: random.Random) -> tuple[list[str], list[int], list[str]]:
    candidates = [index for index, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    rng.shuffle(candidates)
    count = min(MAX_PREDICTIONS, max(1, round(len(tokens) * MASKED_LM_PROB)))
    masked = list(tokens)
    positions = sorted(candidates[:count])
    for index in positions:
        if rng.random() < 0.8:
            masked[index] = "[MASK]"
        elif rng.random() >= 0.5:
            masked[index] = words[rng.randint(0, len(words) - 1)]
    return masked, positions, [tokens[index] for index in positions]


def example(instance: Instance, tokenizer: BertTokenizer) -> Any:
    ids: Any = tokenizer.convert_tokens_to_ids(instance.tokens)
    padding = [0] * (MAX_SEQ_LENGTH - len(ids))
    missing = [0] * (MAX_PREDICTIONS - len(instance.positions))
    labels: Any = tokenizer.convert_tokens_to_ids(instance.labels)
    integers = {
        "input_ids": ids + padding,
        "input_mask": [1] * len(ids) + padding,
        "segment_ids": instance.segment_ids + padding,
        "masked_lm_positions": instance.positions + missing,
        "masked_lm_ids": labels + missing,
        "next_sentence_labels": [int(instance.is_random_next)],
    }
    weights = [1.0] * len(labels) + [0.0] * len(missing)
    features = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=values)) for name, values in integers.items()
    }
    features["masked_lm_weights"] = tf.train.Feature(float_list=tf.train.FloatList(value=weights))
    return tf.train.Example(features=tf.train.Features(feature=features))


def prepare(files: Sequence[Path], vocabulary: Path, output: Path) -> int:
    """Write one TFRecord file from sentence files.

    Returns:
        Records written.
    """
    tokenizer = BertTokenizer(str(vocabulary), do_lower_case=True)
    rng = random.Random(SEED)
    words = list(tokenizer.vocab)
    instances = make_instances(read_documents(files, tokenizer), words, rng)
    with tf.io.TFRecordWriter(str(output)) as writer:
        for instance in instances:
            writer.write(example(instance, tokenizer).SerializeToString())
    return len(instances)
