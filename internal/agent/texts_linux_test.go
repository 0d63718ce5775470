package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/client"
	"netemd/internal/config"
	"netemd/internal/fault"
	"netemd/internal/wire"
	"netemd/namespaces"
	"netemd/qdisc"
)

// textsOf calls f with the way to each field of a message that holds text.
func textsOf(m protoreflect.MessageDescriptor, way []protoreflect.FieldDescriptor, f func(way []protoreflect.FieldDescriptor)) {
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		next := append(slices.Clone(way), field)
		switch {
		case field.Kind() == protoreflect.StringKind:
			f(next)
		case field.Message() != nil && !slices.ContainsFunc(way, func(w protoreflect.FieldDescriptor) bool { return w.Message() == field.Message() }):
			textsOf(field.Message(), next, f)
		}
	}
}

// with is a request with nothing in it but that text.
func with(t *testing.T, m protoreflect.MessageDescriptor, way []protoreflect.FieldDescriptor, text string) protobuf.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.FullName())
	if err != nil {
		t.Fatal(err)
	}
	root := kind.New()
	at := root
	for _, f := range way {
		switch v := protoreflect.ValueOfString(text); {
		case f.Kind() == protoreflect.StringKind && f.IsList():
			at.Mutable(f).List().Append(v)
		case f.Kind() == protoreflect.StringKind:
			at.Set(f, v)
		case f.IsList():
			at = at.Mutable(f).List().AppendMutable().Message()
		default:
			at = at.Mutable(f).Message()
		}
	}
	return root.Interface()
}

// asks makes a call of any method, of which the first answer is enough.
func asks(t *testing.T, conn *grpc.ClientConn, method protoreflect.MethodDescriptor, request any, options ...grpc.CallOption) error {
	t.Helper()
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: method.IsStreamingServer(), ClientStreams: method.IsStreamingClient()},
		fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name()), options...)
	if err == nil {
		err = s.SendMsg(request)
	}
	if err == nil {
		err = s.CloseSend()
	}
	if err != nil {
		return err
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		t.Fatal(err)
	}
	return s.RecvMsg(kind.New().Interface())
}

// bytesCodec sends what it is given, as it is, and reads answers as ever.
type bytesCodec struct{}

func (bytesCodec) Name() string { return proto.Name }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	return protobuf.Unmarshal(data.Materialize(), v.(protobuf.Message))
}

// standing is everything that a request could have changed, in words.
func standing(t *testing.T, c *client.Client, ns ...string) (all []string) {
	t.Helper()
	faults, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		all = append(all, fmt.Sprintln("fault", f.ID, f.State, f.Spec.TargetName(), f.Expires))
	}
	labs, err := c.Labs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, fmt.Sprintln(len(labs), "labs"))
	for _, n := range ns {
		err := namespaces.Do(t.Context(), n, func() error {
			links, err := netlink.LinkList()
			for _, l := range links {
				qdiscs, qdiscErr := netlink.QdiscList(l)
				all, err = append(all, fmt.Sprintln("link", n, l.Attrs().Index, l.Attrs().Name, l.Attrs().Alias, l.Attrs().Flags, qdiscs)), errors.Join(err, qdiscErr)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Whatever text a request has, in whatever field, is refused for what it is, and nothing
// changes by it.
func TestTextsOfEveryRequest(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	agent, c := serveWith(t, Config{Log: slog.New(slog.DiscardHandler)})
	apply(t, c, fault.Spec{Selector: ports(a, port(5001)), Packet: &qdisc.Netem{Loss: 1}})
	conn := dial(t, agent.cfg.Socket)
	before := standing(t, c, a, b)

	const placeholder, broken = "placeholder", "\xff\xfe\xffceholder"
	texts, calls := 0, 0
	services := netemv1.File_api_netem_v1_netem_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			method := services.Get(i).Methods().Get(j)
			textsOf(method.Input(), nil, func(way []protoreflect.FieldDescriptor) {
				texts++
				field := string(way[len(way)-1].Name())
				where := fmt.Sprint(method.Name(), " of ", services.Get(i).Name(), ", field ", field)
				// A field that nothing asks for is not in force: targets cannot be added.
				may := []codes.Code{codes.InvalidArgument, codes.NotFound}
				if services.Get(i).Name() == "Targets" {
					may = append(may, codes.Unimplemented)
				}
				yaml := field == "yaml" // its reader has words of its own
				for _, tt := range []struct {
					text string
					// named says that the words are about that field, since no other is wrong yet.
					named bool
				}{{"../x", false}, {"a\x00b", !yaml}, {strings.Repeat("a", 512<<10), !yaml}} {
					calls++
					err := asks(t, conn, method, with(t, method.Input(), way, tt.text))
					if code := status.Code(err); err == nil || !slices.Contains(may, code) || tt.named && (code != codes.InvalidArgument || !strings.Contains(err.Error(), field)) || len(err.Error()) > 1000 {
						t.Errorf("%s: %.20q: %v", where, tt.text, err)
					}
				}
				calls++
				err := asks(t, conn, method, with(t, method.Input(), way, strings.Repeat("a", 1<<20)))
				if !errors.Is(wire.ErrorOf(err), qdisc.ErrInvalid) || !strings.Contains(wire.ErrorOf(err).Error(), "limits.request_bytes") {
					t.Errorf("%s: 1 MiB: %v", where, err)
				}
				// Protobuf's own refusal, which gRPC calls internal before the agent sees it.
				text, err := protobuf.Marshal(with(t, method.Input(), way, placeholder))
				if err != nil {
					t.Fatal(err)
				}
				calls++
				err = asks(t, conn, method, []byte(strings.Replace(string(text), placeholder, broken, 1)), grpc.ForceCodecV2(bytesCodec{}))
				if code := status.Code(err); code != codes.InvalidArgument && (code != codes.Internal || !strings.Contains(err.Error(), "invalid UTF-8")) {
					t.Errorf("%s: no UTF-8: %v", where, err)
				}
			})
		}
	}
	if texts < 40 {
		t.Errorf("%d fields with text", texts)
	}
	t.Logf("%d calls, for %d fields", calls, texts)
	if diff := cmp.Diff(before, standing(t, c, a, b)); diff != "" {
		t.Errorf("something changed (-before +after):\n%s", diff)
	}
}

// A loop that applies without an end is stopped by the limit, in words, and what is beyond it
// costs nothing.
func TestApplyInALoop(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	const most, at = 3, 8
	asked := 2_000
	if os.Getenv("NETEMD_TEST_LONG") != "" {
		asked = 10_000
	}
	agent, c := serveWith(t, Config{Log: slog.New(slog.DiscardHandler), Settings: settings(func(c *config.Config) { c.Limits.Faults = most })})
	for i := range uint16(most) {
		apply(t, c, fault.Spec{Selector: ports(a, port(5001+i)), Packet: &qdisc.Netem{Loss: 1}})
	}
	before := standing(t, c, a, b)
	var wg sync.WaitGroup
	for worker := range at {
		conn := netemv1.NewFaultsClient(dial(t, agent.cfg.Socket))
		wg.Go(func() {
			for i := range asked / at {
				s := fault.Spec{Selector: ports(a, port(uint16(6000+i))), Packet: &qdisc.Netem{Loss: 1}, Engine: fault.EBPF, RequestID: fmt.Sprint(worker, "-", i)}
				if _, err := conn.Apply(t.Context(), wire.ApplyRequest(s)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "limits.faults") {
					t.Errorf("fault %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff(before, standing(t, c, a, b)); diff != "" {
		t.Errorf("something changed (-before +after):\n%s", diff)
	}
}

// What the command line is given reaches the agent, or not, and is an error of use either way.
func TestTextsOfTheCommandLine(t *testing.T) {
	dir := reachable(t)
	_, _ = serveWith(t, Config{StateDir: dir})
	for _, line := range []string{
		"loss 1% --target ../x", "loss 1% --dev v0 --netns ../x", "loss 1% --dev ../x", "show ../x", "clear --target ../x", "clear --dev v0 --netns ../x",
		"lab up ../x", "lab down ../x", "probe pg --target ../x -n 1", "watch --after 1 --life ../x",
	} {
		if code, said := netemctl(t, 0, nil, append(strings.Fields(line), "--socket", filepath.Join(dir, "netemd.sock"))...); code != 1 && code != 2 || !strings.Contains(said, "../x") {
			t.Errorf("%s: exit code %d, want 1 or 2, and what is wrong: %s", line, code, said)
		}
	}
}
