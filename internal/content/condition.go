package content

import "go/token"

// Condition is what an expression says, checked: And, Or, Not, Is, Compare or At. It is
// true or false of each packet.
type Condition interface{ holds(p *packet) bool }

// Number is what a Compare compares: Const, Field, Byte or Arithmetic.
type Number interface {
	// of is false where the packet has no such field.
	of(p *packet) (int64, bool)
}

// And is X && Y.
type And struct{ X, Y Condition }

// Or is X || Y.
type Or struct{ X, Y Condition }

// Not is !X.
type Not struct{ X Condition }

// Is is a field that is a condition by itself.
type Is struct{ Field Field }

// Compare is X Op Y, of signed 64-bit numbers.
type Compare struct {
	// Op is token.EQL, NEQ, LSS, LEQ, GTR or GEQ.
	Op   token.Token
	X, Y Number
}

// At says that the payload has Text from Offset on.
type At struct {
	Offset int
	Text   []byte
}

// Const is a number from 0 to 2^32-1.
type Const int64

// Byte is one byte of the payload, from 0.
type Byte int

// Arithmetic is X Op Y.
type Arithmetic struct {
	// Op is token.ADD, SUB, AND or OR.
	Op   token.Token
	X, Y Number
}

// Bounds of an expression; MaxExpr is another.
const (
	// MaxTerms is how many fields, bytes and texts an expression has.
	MaxTerms = 64
	// MaxNesting is how deep the right-hand sides of sums stand in one another.
	MaxNesting = 8
	// MaxOffset is where in the payload the last byte may be.
	MaxOffset = 65535
	// MaxText is the longest text of payload.at.
	MaxText = 64
)
