package conformance

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// hostRules: what brokers would decide by the address of clients makes sidecars not ready.
func hostRules(t *testing.T, e *env) {
	c := e.dst.Sidecars[0]
	home := c.Broker
	awaitReadyz(t, c, http.StatusOK, "")

	// A quota.
	address := "10.9.8.7"
	quota := func(remove bool) {
		t.Helper()
		r, err := e.dstAdmin.AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{
			Entity: kadm.ClientQuotaEntity{{Type: "ip", Name: &address}},
			Ops:    []kadm.AlterClientQuotaOp{{Key: "connection_creation_rate", Value: 7, Remove: remove}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r {
			if x.Err != nil {
				t.Fatal(x.Err, x.ErrMessage)
			}
		}
	}
	quota(false)
	awaitReadyz(t, c, http.StatusServiceUnavailable, "connection_creation_rate of ip 10.9.8.7")

	// With the flag the sidecar says so and is ready.
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := c.Terminate(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.StartWith(ctx, "--allow-host-rules-ignored"); err != nil {
		t.Fatal(err)
	}
	awaitReadyz(t, c, http.StatusOK, "connection_creation_rate of ip 10.9.8.7")
	if err := c.Terminate(ctx); err != nil {
		t.Fatal(err)
	}
	quota(true)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	awaitReadyz(t, c, http.StatusOK, "")

	// A limit of the broker's.
	limit := func(op kmsg.IncrementalAlterConfigOp) {
		t.Helper()
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeBroker, fmt.Sprint(home)
		cfg := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		value := "100000"
		cfg.Name, cfg.Op, cfg.Value = "max.connections.per.ip", op, &value
		res.Configs = append(res.Configs, cfg)
		req.Resources = append(req.Resources, res)
		resp, err := e.dstClient.Broker(int(home)).RetriableRequest(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if r := resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; r.ErrorCode != 0 {
			t.Fatal(r.ErrorCode, text(r.ErrorMessage))
		}
	}
	limit(kmsg.IncrementalAlterConfigOpSet)
	awaitReadyz(t, c, http.StatusServiceUnavailable, "max.connections.per.ip=100000")
	limit(kmsg.IncrementalAlterConfigOpDelete)
	awaitReadyz(t, c, http.StatusOK, "")

	// An ACL.
	if e.secErr != nil {
		t.Fatal(e.secErr)
	}
	sec := e.sec.stack.Sidecars[0]
	awaitReadyz(t, sec, http.StatusOK, "")
	acl := kadm.NewACLs().Allow("User:elsewhere").AllowHosts("10.9.8.7").Topics("a14-1").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead)
	e.sec.acl(t, acl)
	awaitReadyz(t, sec, http.StatusServiceUnavailable, "User:elsewhere READ on topic a14-1 from host 10.9.8.7")
	adm := kadm.NewClient(newClient(t, e.sec.stack.Direct(), login(userAdmin)))
	if _, err := adm.DeleteACLs(t.Context(), acl); err != nil {
		t.Fatal(err)
	}
	awaitReadyz(t, sec, http.StatusOK, "")
}

// awaitReadyz waits until a sidecar answers with a status and a text.
func awaitReadyz(t *testing.T, c *stack.Sidecar, status int, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("/readyz of sidecar %d is %d with %q", c.Broker, status, text), func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.HTTP+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		if resp.StatusCode != status || !strings.Contains(string(body), text) {
			return fmt.Errorf("%s: %s", resp.Status, body)
		}
		return nil
	})
}
