package match

import (
	"testing"

	"netemd/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
