package service

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// AskPostgres returns nil when the server at the other end asks for a password, which it does
// when it is ready: before, it refuses with "the database system is starting up". (Messages:
// "Frontend/Backend Protocol", version 3.0, of PostgreSQL's manual.) It takes 2 s at most, and
// the connection is of no use afterwards.
func AskPostgres(c net.Conn, user, database string) error {
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	const protocol3 = 3 << 16
	body := binary.BigEndian.AppendUint32(nil, protocol3)
	body = append(body, "user\x00"+user+"\x00database\x00"+database+"\x00\x00"...)
	message := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	if _, err := c.Write(append(message, body...)); err != nil {
		return err
	}
	answer := make([]byte, 512)
	n, err := c.Read(answer)
	if err != nil {
		return err
	}
	if answer[0] != 'R' { // an authentication request
		return fmt.Errorf("answer %q", answer[:n])
	}
	return nil
}

// answersPostgres is nil when a server at one of the addresses asks that user for a password,
// or when there is no user.
func answersPostgres(ctx context.Context, addresses []netip.AddrPort, user string) error {
	if user == "" {
		return nil
	}
	var errs []error
	for _, at := range addresses {
		c, err := (&net.Dialer{Timeout: checkLimit}).DialContext(ctx, "tcp", at.String())
		if err == nil {
			err = AskPostgres(c, user, "postgres")
			_ = c.Close()
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
