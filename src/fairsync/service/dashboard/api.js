// Talking to the service. Addresses are relative, so that it may live under a path of another server.

const TOKEN = "fairsync-token";
const PATIENCE = 8000;

export class ServiceError extends Error {
  constructor(status, message, hint = "") {
    super(message);
    this.status = status;
    this.hint = hint;
  }

  /** What to tell people: what went wrong, and what to do. */
  get words() {
    return this.hint && !this.message.includes(this.hint) ? `${this.message} ${this.hint}` : this.message;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
};

async function call(method, path, body) {
  const headers = { Accept: "application/json" };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(`v1/${path}`, {
      method, headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE),
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new ServiceError(0, "The service does not answer.", "Check that it runs and that you are online.");
  }
  const said = await answer.json().catch(() => null);
  if (answer.ok) return said;
  throw new ServiceError(answer.status, said?.message ?? `The service answered ${answer.status}.`, said?.hint ?? "");
}

const one = (id) => `promises/${encodeURIComponent(id)}`;

export const overview = () => call("GET", "overview");
export const past = (limit) => call("GET", `past?limit=${limit}`);
export const pace = (id) => call("GET", `${one(id)}/pace`);
export const preview = (promise, replacing) =>
  call("POST", `promises/preview${replacing ? `?replacing=${encodeURIComponent(replacing)}` : ""}`, promise);
export const add = (promise) => call("POST", "promises", promise);
export const change = (id, promise) => call("PUT", one(id), promise);
export const remove = (id) => call("DELETE", one(id));
