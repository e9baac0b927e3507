// The HTTP client of the dashboard. URLs are relative, so that a proxy may serve it under any path.

const TOKEN = "fairsync-token";
const TIMEOUT_MS = 8000;

export class ServiceError extends Error {
  constructor(status, message, hint = "") {
    super(message);
    this.status = status;
    this.hint = hint;
  }

  /** The message and the hint: what went wrong, and what to do. */
  get explanation() {
    return this.hint && !this.message.includes(this.hint) ? `${this.message} ${this.hint}` : this.message;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  remove: () => sessionStorage.removeItem(TOKEN),
};

async function call(method, path, body) {
  const headers = { Accept: "application/json" };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(`v1/${path}`, {
      method, headers, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS),
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new ServiceError(0, "The service does not answer.", "Check that it runs and that you are online.");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer;
  throw new ServiceError(response.status, answer?.message ?? `The service answered ${response.status}.`, answer?.hint ?? "");
}

const promisePath = (id) => `promises/${encodeURIComponent(id)}`;

export const overview = () => call("GET", "overview");
export const past = (limit) => call("GET", `past?limit=${limit}`);
export const arms = () => call("GET", "arms");
export const audit = (limit, before) => call("GET", `audit?limit=${limit}${before ? `&before=${before}` : ""}`);
export const attributes = (name, text = "", limit = 100) =>
  call("GET", `attributes?limit=${limit}&text=${encodeURIComponent(text)}${name ? `&name=${encodeURIComponent(name)}` : ""}`);
export const pace = (id) => call("GET", `${promisePath(id)}/pace`);
export const preview = (promise, replacing) =>
  call("POST", `promises/preview${replacing ? `?replacing=${encodeURIComponent(replacing)}` : ""}`, promise);
export const createPromise = (promise) => call("POST", "promises", promise);
export const updatePromise = (id, promise) => call("PUT", promisePath(id), promise);
export const deletePromise = (id) => call("DELETE", promisePath(id));
