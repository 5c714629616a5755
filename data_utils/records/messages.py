"""TensorFlow's message for a record, ``tf.train.Example``, for protobuf's parser and without TensorFlow.

On the wire, TensorFlow's map from the names of features to their lists is a list of entries; declared as one, it keeps
its order.

Source: tensorflow/core/example/{example,feature}.proto.
"""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessages
from google.protobuf.text_format import Parse

INTEGERS, FLOATS = "int64_list", "float_list"

_FILE = """
name: "data_utils/records/example.proto" package: "records" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Int64List" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type {
  name: "Feature"
  oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 oneof_index: 0 type: TYPE_MESSAGE type_name: ".records.BytesList" }
  field { name: "float_list" number: 2 oneof_index: 0 type: TYPE_MESSAGE type_name: ".records.FloatList" }
  field { name: "int64_list" number: 3 oneof_index: 0 type: TYPE_MESSAGE type_name: ".records.Int64List" }
}
message_type {
  name: "Entry"
  field { name: "key" number: 1 type: TYPE_STRING }
  field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".records.Feature" }
}
message_type {
  name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".records.Entry" }
}
message_type {
  name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".records.Features" }
}
"""

Example = GetMessages([Parse(_FILE, FileDescriptorProto())])["records.Example"]
