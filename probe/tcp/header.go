package tcp

import (
	"encoding/binary"
	"fmt"
	"io"

	"netemd/probe"
)

// MaxBytes is the largest payload of a transfer.
const MaxBytes = 1 << 30

// Way says which way a transfer goes.
type Way byte

// Sink is from the client to the server, Source the other way. Received answers a Sink,
// with what it got.
const (
	Sink     Way = 'S'
	Source   Way = 'D'
	Received Way = 'R'
)

// HeaderSize is the length of a Header in bytes.
const HeaderSize = 16

// magic begins with a 0, which no echo of this probe does, so that a server can tell
// both by their first byte.
const magic = "\x00netem1"

// Header asks for a transfer, or answers one. On the wire it is the magic, the way, and the bytes in network order.
type Header struct {
	Way   Way
	Bytes uint64
}

// Marshal gives the header's HeaderSize bytes.
func (h Header) Marshal() []byte {
	b := append(make([]byte, 0, HeaderSize), magic...)
	b = append(b, byte(h.Way))
	return binary.BigEndian.AppendUint64(b, h.Bytes)
}

// ParseHeader reads a header of HeaderSize bytes. The error is a *probe.ProtocolError.
func ParseHeader(b []byte) (Header, error) {
	if len(b) != HeaderSize || string(b[:len(magic)]) != magic {
		return Header{}, &probe.ProtocolError{Err: fmt.Errorf("tcp: %q is no answer of an echo service", b)}
	}
	h := Header{Way(b[len(magic)]), binary.BigEndian.Uint64(b[len(magic)+1:])}
	if h.Way != Sink && h.Way != Source && h.Way != Received || h.Bytes > MaxBytes {
		return Header{}, &probe.ProtocolError{Err: fmt.Errorf("tcp: way %q of %d bytes: want S, D or R, at most %d", h.Way, h.Bytes, MaxBytes)}
	}
	return h, nil
}

// ReadHeader reads a header from a connection.
func ReadHeader(r io.Reader) (Header, error) {
	b := make([]byte, HeaderSize)
	if _, err := io.ReadFull(r, b); err != nil {
		return Header{}, err
	}
	return ParseHeader(b)
}

// Serve answers a client's transfers on one connection. first is what was read of it
// already, at most HeaderSize bytes.
func Serve(c io.ReadWriter, first []byte) error {
	b := make([]byte, HeaderSize)
	have := copy(b, first)
	for {
		if _, err := io.ReadFull(c, b[have:]); err != nil {
			return err
		}
		have = 0
		h, err := ParseHeader(b)
		if err != nil {
			return err
		}
		switch h.Way {
		case Sink:
			if n, err := io.CopyN(io.Discard, c, int64(h.Bytes)); err != nil {
				return fmt.Errorf("tcp: %d of %d bytes: %w", n, h.Bytes, err)
			}
			_, err = c.Write(Header{Received, h.Bytes}.Marshal())
		case Source:
			for done := 0; done < int(h.Bytes) && err == nil; {
				var n int
				n, err = c.Write(piece(done, int(h.Bytes)-done))
				done += n
			}
		default:
			err = &probe.ProtocolError{Err: fmt.Errorf("tcp: way %q of a client: want S or D", h.Way)}
		}
		if err != nil {
			return err
		}
	}
}
