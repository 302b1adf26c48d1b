package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
)

// halfSent begins gRPC calls on one connection, which stays open until the test ends. Each call
// announces a message of 32 MiB and sends 100 bytes of it. The test makes the frames itself,
// since a library would send whole messages.
func halfSent(t *testing.T, p *process, tenant string, calls int) {
	t.Helper()
	conn, err := net.Dial("tcp", p.OTLPGRPC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	var out bytes.Buffer
	frame := func(kind, flags byte, stream int, payload []byte) {
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(payload)))
		out.Write(append(length[1:], kind, flags))
		_ = binary.Write(&out, binary.BigEndian, uint32(stream))
		out.Write(payload)
	}
	const data, headers, settings, endHeaders = 0, 1, 4, 4
	out.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	frame(settings, 0, 0, nil)
	var fields []byte // HPACK literals without indexing
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"},
		{":path", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"}, {":authority", p.OTLPGRPC},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"x-scope-orgid", tenant},
	} {
		fields = append(fields, 0)
		for _, text := range f {
			fields = append(append(fields, byte(len(text))), text...)
		}
	}
	half := append(binary.BigEndian.AppendUint32([]byte{0}, 32<<20), make([]byte, 100)...)
	for i := range calls {
		frame(headers, endHeaders, 2*i+1, fields)
		frame(data, 0, 2*i+1, half)
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
}

// halfPosted begins HTTP requests that announce a body of 32 MiB and send 100 bytes of it.
func halfPosted(t *testing.T, p *process, tenant string, requests int) {
	t.Helper()
	for i := range requests {
		conn, err := net.Dial("tcp", p.HTTP)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		path := []string{"/v1/metrics", "/api/v1/write"}[i%2]
		fmt.Fprintf(conn,
			"POST %s HTTP/1.1\r\nHost: %s\r\nX-Scope-OrgID: %s\r\nContent-Type: application/x-protobuf\r\n"+
				"Content-Length: %d\r\n\r\n%s",
			path, p.HTTP, tenant, 32<<20, make([]byte, 100))
	}
}

// TestHalfSentRequests checks that clients can write while other clients begin requests and never
// finish them. Earlier, each such request reserved memory for a request of the maximum size, so four
// gRPC calls blocked their tenant for a minute, and eight calls blocked all tenants. HTTP requests
// with a Content-Length did the same.
func TestHalfSentRequests(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t), "--http-trust-tenant-header", "--http-allow-unknown-tenants")
	for _, calls := range []int{8, 40} {
		halfSent(t, p, "team-a", calls)
		halfPosted(t, p, "team-a", calls)
	}
	// All tenants can write by every input, long before the half-sent requests time out.
	const patience = 30 * time.Second
	began := time.Now()
	for i := range 3 {
		for _, tenant := range []string{"team-a", "team-b"} {
			name := fmt.Sprintf("beside_%d", i)
			header := map[string]string{"x-scope-orgid": tenant}
			meter, provider := service(name, grpcExporter(otlpmetricgrpc.WithHeaders(header))(t, p, false))
			recordAll(t, meter)
			if err := provider.Shutdown(t.Context()); err != nil {
				t.Errorf("OTLP over gRPC for tenant %s: %v", tenant, err)
			}
			body := pack(t, v1Of(requestV2(time.Now().UnixMilli(), 1, name)))
			r, err := http.NewRequest(http.MethodPost, "http://"+p.HTTP+"/api/v1/write", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/x-protobuf")
			r.Header.Set("X-Scope-OrgID", tenant)
			client := http.Client{Timeout: patience}
			if answer, err := client.Do(r); err != nil || answer.Body.Close() != nil ||
				answer.StatusCode != http.StatusNoContent {
				t.Errorf("remote write for tenant %s was answered with %v, want 204; error %v", tenant, answer, err)
			}
		}
	}
	if took := time.Since(began); took > patience {
		t.Errorf("with half-sent requests open, twelve whole requests took %v, want at most %v", took, patience)
	}
	eventually(t, time.Minute, "half-sent requests are cut off and counted", func() error {
		if n, err := p.metric(`freshet_receive_unread_requests_total{reason="stalled"}`); err != nil || n != 2*48 {
			return fmt.Errorf("%v of 96 stalled requests are counted; error %v", n, err)
		}
		return nil
	})
}
