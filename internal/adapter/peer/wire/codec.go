package wire

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
)

// Codec encodes and decodes like gRPC's codec for protobuf, and copies less. It does not copy the bodies of Parts at
// all. The bodies of a received Batch point into the memory of the Batch, which is received once.
var Codec encoding.CodecV2 = codec{encoding.GetCodecV2(proto.Name)}

type codec struct{ encoding.CodecV2 }

// Parts is a Batch of messages to be sent. The bodies must not change afterwards.
type Parts []Part

// Part is a Message whose body is in parts that follow each other.
type Part struct {
	Body    [][]byte
	Bytes   int // of Body
	Sent    int64
	Applied uint64
	Short   bool
}

// Numbers of fields in peer.proto.
const (
	fieldMessages = 2 // of Batch

	fieldBody    = 1 // of Message
	fieldSent    = 2
	fieldApplied = 3
	fieldShort   = 4
)

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	all, is := v.(Parts)
	if !is {
		return c.CodecV2.Marshal(v)
	}
	var out mem.BufferSlice
	for i := range all {
		m := &all[i]
		size := protowire.SizeTag(fieldSent) + protowire.SizeFixed64() + protowire.SizeTag(fieldApplied) +
			protowire.SizeVarint(m.Applied) + protowire.SizeTag(fieldBody) + protowire.SizeBytes(m.Bytes)
		if m.Short {
			size += protowire.SizeTag(fieldShort) + protowire.SizeVarint(1)
		}
		head := protowire.AppendTag(nil, fieldMessages, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(size))
		head = protowire.AppendTag(head, fieldSent, protowire.Fixed64Type)
		head = protowire.AppendFixed64(head, uint64(m.Sent))
		head = protowire.AppendTag(head, fieldApplied, protowire.VarintType)
		head = protowire.AppendVarint(head, m.Applied)
		if m.Short {
			head = protowire.AppendTag(head, fieldShort, protowire.VarintType)
			head = protowire.AppendVarint(head, 1)
		}
		head = protowire.AppendTag(head, fieldBody, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(m.Bytes))
		out = append(out, mem.SliceBuffer(head))
		for _, part := range m.Body {
			if len(part) > 0 {
				out = append(out, mem.SliceBuffer(part))
			}
		}
	}
	return out, nil
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	b, is := v.(*Batch)
	if !is {
		return c.CodecV2.Unmarshal(data, v)
	}
	return ParseBatch(b, data.Materialize())
}

// ParseBatch does what proto.Unmarshal does, except that bodies point into `from`, and that it drops fields
// that peer.proto does not have.
func ParseBatch(b *Batch, from []byte) error {
	var others []byte
	for len(from) > 0 {
		number, kind, n := protowire.ConsumeField(from)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if number != fieldMessages || kind != protowire.BytesType {
			others = append(others, from[:n]...)
			from = from[n:]
			continue
		}
		_, _, tag := protowire.ConsumeTag(from)
		body, _ := protowire.ConsumeBytes(from[tag:])
		m, err := parseMessage(body)
		if err != nil {
			return err
		}
		b.Messages, from = append(b.Messages, m), from[n:]
	}
	return protobuf.UnmarshalOptions{DiscardUnknown: true, Merge: true}.Unmarshal(others, b)
}

func parseMessage(from []byte) (*Message, error) {
	m := &Message{}
	for len(from) > 0 {
		number, kind, n := protowire.ConsumeField(from)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		_, _, tag := protowire.ConsumeTag(from)
		value := from[tag:n:n]
		switch {
		case number == fieldBody && kind == protowire.BytesType:
			m.Body, _ = protowire.ConsumeBytes(value)
		case number == fieldSent && kind == protowire.Fixed64Type:
			sent, _ := protowire.ConsumeFixed64(value)
			m.Sent = int64(sent)
		case number == fieldApplied && kind == protowire.VarintType:
			m.Applied, _ = protowire.ConsumeVarint(value)
		case number == fieldShort && kind == protowire.VarintType:
			short, _ := protowire.ConsumeVarint(value)
			m.Short = short != 0
		}
		from = from[n:]
	}
	return m, nil
}
