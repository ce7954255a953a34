//! ONNX files: the messages of `onnx.proto` that an import needs, as views of the file's bytes.

use super::wire::{Budget, Message, Value, WireError, floats, integers};

/// Dimensions of a tensor at most.
const MOST_DIMS: usize = 64;

/// Numbers of a list in an attribute at most.
const MOST_NUMBERS: usize = 1 << 20;

/// `ModelProto`.
#[derive(Debug, Default)]
pub(super) struct Model<'a> {
    /// Version of the standard operators.
    pub(super) opset: Option<i64>,
    pub(super) producer: &'a str,
    pub(super) graph: Option<Graph<'a>>,
}

/// `GraphProto`.
#[derive(Debug, Default)]
pub(super) struct Graph<'a> {
    pub(super) name: &'a str,
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) initializers: Vec<Tensor<'a>>,
    pub(super) inputs: Vec<ValueInfo<'a>>,
    pub(super) outputs: Vec<ValueInfo<'a>>,
    pub(super) values: Vec<ValueInfo<'a>>,
    /// Initialisers in the sparse form, which are not read.
    pub(super) sparse: u64,
}

/// `NodeProto`.
#[derive(Debug, Default)]
pub(super) struct Node<'a> {
    pub(super) name: &'a str,
    pub(super) op: &'a str,
    pub(super) domain: &'a str,
    pub(super) inputs: Vec<&'a str>,
    pub(super) outputs: Vec<&'a str>,
    pub(super) attributes: Vec<(&'a str, Attribute<'a>)>,
}

/// `AttributeProto`.
#[derive(Debug, Clone)]
pub(super) enum Attribute<'a> {
    Int(i64),
    Float(f32),
    Text(&'a [u8]),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Tensor(Box<Tensor<'a>>),
    /// Subgraphs and lists of text, which no known operator needs.
    Other,
}

/// `TensorProto`.
#[derive(Debug, Default, Clone)]
pub(super) struct Tensor<'a> {
    pub(super) name: &'a str,
    pub(super) dims: Vec<u64>,
    /// As `TensorProto.DataType` counts.
    pub(super) data_type: i64,
    /// Little-endian elements.
    pub(super) raw: Option<&'a [u8]>,
    /// Fields of typed elements.
    pub(super) typed: Vec<Value<'a>>,
    /// Elements in another file: keys and values.
    pub(super) external: Vec<(&'a str, &'a str)>,
    pub(super) is_external: bool,
    /// Place in the file, for errors.
    pub(super) at: usize,
}

/// `ValueInfoProto` of a tensor.
#[derive(Debug, Default)]
pub(super) struct ValueInfo<'a> {
    pub(super) name: &'a str,
    pub(super) data_type: i64,
    pub(super) shape: Option<Vec<Dim<'a>>>,
}

/// A dimension of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dim<'a> {
    Known(u64),
    Named(&'a str),
    Unknown,
}

/// Reads a model.
pub(super) fn model<'a>(bytes: &'a [u8]) -> Result<Model<'a>, WireError> {
    let budget = Budget::new();
    let mut message: Message<'a, '_> = Message::new(bytes, &budget);
    let mut model = Model::default();
    while let Some((number, value)) = message.next()? {
        match number {
            2 => model.producer = text(value)?,
            7 => model.graph = Some(graph(message.inside(value)?)?),
            8 => {
                let mut opset = message.inside(value)?;
                let (mut domain, mut version) = ("", 0);
                while let Some((number, value)) = opset.next()? {
                    match number {
                        1 => domain = text(value)?,
                        2 => version = integer(value)?,
                        _ => {}
                    }
                }
                if matches!(domain, "" | "ai.onnx") {
                    model.opset = Some(version);
                }
            }
            _ => {}
        }
    }
    Ok(model)
}

fn graph<'a>(mut message: Message<'a, '_>) -> Result<Graph<'a>, WireError> {
    let mut graph = Graph::default();
    while let Some((number, value)) = message.next()? {
        match number {
            1 => graph.nodes.push(node(message.inside(value)?)?),
            2 => graph.name = text(value)?,
            5 => graph.initializers.push(tensor(value, &message)?),
            11 => graph.inputs.push(value_info(message.inside(value)?)?),
            12 => graph.outputs.push(value_info(message.inside(value)?)?),
            13 => graph.values.push(value_info(message.inside(value)?)?),
            15 => graph.sparse += 1,
            _ => {}
        }
    }
    Ok(graph)
}

fn node<'a>(mut message: Message<'a, '_>) -> Result<Node<'a>, WireError> {
    let mut node = Node::default();
    while let Some((number, value)) = message.next()? {
        match number {
            1 => node.inputs.push(text(value)?),
            2 => node.outputs.push(text(value)?),
            3 => node.name = text(value)?,
            4 => node.op = text(value)?,
            5 => node.attributes.push(attribute(message.inside(value)?)?),
            7 => node.domain = text(value)?,
            _ => {}
        }
    }
    Ok(node)
}

fn attribute<'a>(mut message: Message<'a, '_>) -> Result<(&'a str, Attribute<'a>), WireError> {
    let mut name = "";
    let mut found = Attribute::Other;
    let (mut whole, mut real) = (Vec::new(), Vec::new());
    let mut kind = 0;
    while let Some((number, value)) = message.next()? {
        match number {
            1 => name = text(value)?,
            2 => {
                floats(value, 1, &mut real)?;
                found = Attribute::Float(real.pop().unwrap_or(0.0));
            }
            3 => found = Attribute::Int(integer(value)?),
            4 => found = Attribute::Text(bytes(value)?),
            5 => found = Attribute::Tensor(Box::new(tensor(value, &message)?)),
            7 => floats(value, MOST_NUMBERS, &mut real)?,
            8 => integers(value, MOST_NUMBERS, &mut whole)?,
            20 => kind = integer(value)?,
            _ => {}
        }
    }
    // A list without elements leaves only its type behind.
    if !whole.is_empty() || kind == 7 {
        found = Attribute::Ints(whole);
    } else if !real.is_empty() || kind == 6 {
        found = Attribute::Floats(real);
    }
    Ok((name, found))
}

fn tensor<'a>(value: Value<'a>, parent: &Message<'a, '_>) -> Result<Tensor<'a>, WireError> {
    let mut message = parent.inside(value)?;
    let mut tensor = Tensor { at: if let Value::Bytes(_, at) = value { at } else { 0 }, ..Tensor::default() };
    let mut dims = Vec::new();
    while let Some((number, value)) = message.next()? {
        match number {
            1 => integers(value, MOST_DIMS, &mut dims)?,
            2 => tensor.data_type = integer(value)?,
            4 | 5 | 7 | 10 | 11 => tensor.typed.push(value),
            8 => tensor.name = text(value)?,
            9 => tensor.raw = Some(bytes(value)?),
            13 => {
                let mut entry = message.inside(value)?;
                let (mut key, mut word) = ("", "");
                while let Some((number, value)) = entry.next()? {
                    match number {
                        1 => key = text(value)?,
                        2 => word = text(value)?,
                        _ => {}
                    }
                }
                tensor.external.push((key, word));
            }
            14 => tensor.is_external = integer(value)? == 1,
            _ => {}
        }
    }
    let whole =
        |&dim: &i64| u64::try_from(dim).map_err(|_| Message::error(tensor.at, format!("{dim} is no dimension")));
    tensor.dims = dims.iter().map(whole).collect::<Result<_, _>>()?;
    Ok(tensor)
}

fn value_info<'a>(mut message: Message<'a, '_>) -> Result<ValueInfo<'a>, WireError> {
    let mut info = ValueInfo::default();
    while let Some((number, value)) = message.next()? {
        match number {
            1 => info.name = text(value)?,
            2 => {
                let mut of_type = message.inside(value)?;
                while let Some((number, value)) = of_type.next()? {
                    if number == 1 {
                        tensor_type(of_type.inside(value)?, &mut info)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(info)
}

fn tensor_type<'a>(mut message: Message<'a, '_>, info: &mut ValueInfo<'a>) -> Result<(), WireError> {
    while let Some((number, value)) = message.next()? {
        match number {
            1 => info.data_type = integer(value)?,
            2 => {
                let mut shape = message.inside(value)?;
                let mut dims = Vec::new();
                while let Some((number, value)) = shape.next()? {
                    if number != 1 {
                        continue;
                    }
                    let mut dim = shape.inside(value)?;
                    let mut found = Dim::Unknown;
                    while let Some((number, value)) = dim.next()? {
                        match number {
                            // Some exporters write 0 or -1 for what they do not know.
                            1 => {
                                let size = u64::try_from(integer(value)?).ok().filter(|&n| n > 0);
                                found = size.map_or(found, Dim::Known);
                            }
                            2 => found = Some(text(value)?).filter(|name| !name.is_empty()).map_or(found, Dim::Named),
                            _ => {}
                        }
                    }
                    dims.push(found);
                    if dims.len() > MOST_DIMS {
                        return Err(Message::error(0, format!("{:?} has more than {MOST_DIMS} dimensions", info.name)));
                    }
                }
                info.shape = Some(dims);
            }
            _ => {}
        }
    }
    Ok(())
}

fn text(value: Value<'_>) -> Result<&str, WireError> {
    match value {
        Value::Bytes(bytes, at) => std::str::from_utf8(bytes).map_err(|_| Message::error(at, "a name is not UTF-8")),
        _ => Err(Message::error(0, "a number stands where a name is expected")),
    }
}

fn bytes(value: Value<'_>) -> Result<&[u8], WireError> {
    match value {
        Value::Bytes(bytes, _) => Ok(bytes),
        _ => Err(Message::error(0, "a number stands where bytes are expected")),
    }
}

fn integer(value: Value<'_>) -> Result<i64, WireError> {
    match value {
        Value::Varint(number) => Ok(number.cast_signed()),
        Value::Bytes(_, at) => Err(Message::error(at, "bytes stand where an integer is expected")),
        Value::Fixed64(_) | Value::Fixed32(_) => Err(Message::error(0, "an integer is of the wrong wire type")),
    }
}
